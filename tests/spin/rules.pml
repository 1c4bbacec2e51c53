/* What the models share: how an invariant is stated. Its number is the one of "What must hold" in ARCHITECTURE.md.
 *
 * A protection is taken away with -DNO_<NAME>; each is looked up where it works, so that a model without switches is the design.
 * What a model prints is a line of the kept traces: who does what, in the words of the documentation. pan itself prints none of it. */

#define must(text, condition) if :: (condition) :: else -> printf(text); assert(false) fi

#define larger(a, b) ((a) > (b) -> (a) : (b))
