/* For cppcheck, which reads no header of the system: what its macros make. */
#define TAILQ_HEAD(name, type) struct { struct type *first; }
#define TAILQ_ENTRY(type) struct { struct type *next; }
#define TAILQ_FIRST(head) ((head)->first)
#define TAILQ_FOREACH(variable, head, field) for ((variable) = (head)->first; (variable); (variable) = (variable)->field.next)
