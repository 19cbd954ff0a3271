"""Shell scripts, read without running them. `script.read_script` is the way in.

Text to statements: scan, syntax, tree. Words to text: variables, fields, parameters, arithmetic, expand, values.
Statements in order: run, branches, loops, simple_commands, nested_scripts, assigning, over the state.
"""
