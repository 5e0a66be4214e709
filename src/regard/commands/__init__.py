"""What the commands do with a bundle, behind the command line: answer, measure, score, and look inside."""
