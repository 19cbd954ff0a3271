"""Command lines that start ranks.

Commands of any trainer, in scripts and manifests: launch_script, command_line, launchers, training_flags. Megatron-LM's
scripts, where every word keeps why it may be unknown: launch_line, launch_ranks, launch_meeting, launch_environment.
Both use option_words, slurm and variables.
"""
