"""select: the rows worth training on, by target texts and by what is known of each row."""
