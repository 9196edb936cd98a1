"""What is fetched from elsewhere: files over https, and the Hugging Face Hub."""
