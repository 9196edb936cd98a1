"""What a training node runs: the plan carried out into /dev/shm, waited for, served and verified."""
