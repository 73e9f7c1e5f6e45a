"""Records of stage 2: `FunctionMeta`, its facts, and the numbers and sentences made from them."""
