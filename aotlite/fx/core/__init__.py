"""What FX's words are laid over: a linked edit, the structure of results, generated code.

linked_edit   `GraphEdit` with moves, an order of nodes, and metas that follow each change
structure     nested results as leaves and a template
codegen       `CodeGen`: the Python of a graph, for `GraphModule`
arguments     FX's arguments and those of the IR, each made of the other
replaced      names of torch.fx that have another word here
"""
