"""Command lines that start a job: launchers, their ranks, environment and flags."""
