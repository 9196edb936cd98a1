"""How a stage is started: a command line, Kubeflow's launcher, a Kubeflow component."""
