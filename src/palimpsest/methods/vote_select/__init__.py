"""Method `vote_select`: rows of another method, chosen by one noisy vote."""
