"""What stage 2 finds, as records: `FunctionMeta`, its facts, and what follows from them."""
