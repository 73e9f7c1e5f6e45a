/* From Python to `run` and back, with one call and without Python's headers: the interpreter's
   functions, all of its stable interface, come as pointers. Spec: specs/cpu_runtime.md.
   Read behind products.c and arenas.c. */

#include <stdlib.h>

typedef struct object object; /* PyObject */

typedef struct al_python {
    object *array_type, *tuple_type, *error; /* numpy.ndarray, tuple, what is raised */
    int64_t type_offset, data_offset; /* where objects keep their type, ndarrays their data */
    int (*is_instance)(object *, object *);
    intptr_t (*list_size)(object *);
    object *(*list_item)(object *, intptr_t);
    intptr_t (*tuple_size)(object *);
    object *(*tuple_item)(object *, intptr_t);
    long long (*as_integer)(object *);
    object *(*from_integer)(long long);
    void *(*save_thread)(void);
    void (*restore_thread)(void *);
    void (*set_error)(object *, const char *);
    object *(*no_memory)(void);
} al_python;

typedef struct al_call {
    int (*run)(void **slots, const al_runtime *runtime);
    int64_t values, constants, arena_bytes;
    int64_t brief; /* whether a run is over sooner than other threads would take up */
    const int64_t *sizes;          /* bytes of an element, of each value */
    void *const *constant_slots;
} al_call;

static al_python python;

enum { NO_MEMORY = -1, SMALL_ARENA = 4096 };

/* Fills the slots behind the values, runs, and returns what `run` returns, or NO_MEMORY. */
static int run_in(const al_call *call, void **slots, void *scratch) {
    for (int64_t i = 0; i < call->constants; i++) slots[call->values + i] = call->constant_slots[i];
    slots[call->values + call->constants] = scratch;
    return call->run(slots, al_runtime_now());
}

/* A page on the stack, for small arenas: to take and to give one costs as much as a short run. */
__attribute__((noinline)) static int run_small(const al_call *call, void **slots) {
    char page[SMALL_ARENA] __attribute__((aligned(SMALL_ARENA)));
    return run_in(call, slots, page);
}

static int run_call(const al_call *call, void **slots) {
    if (!call->arena_bytes) return run_in(call, slots, NULL);
    if (call->arena_bytes <= SMALL_ARENA) return run_small(call, slots);
    arena scratch = take_arena(call->arena_bytes);
    if (!scratch.address) return NO_MEMORY;
    int code = run_in(call, slots, scratch.address);
    give_arena(scratch);
    return code;
}

/* The same for callers that have addresses, in `slots` with room for all. */
int al_run(const al_call *call, void **slots) { return run_call(call, slots); }

static char *data_of(object *array) {
    return *(char **)((char *)array + python.data_offset);
}

static object *type_of(object *value) {
    return *(object **)((char *)value + python.type_offset);
}

/* Subclasses count. */
static int is(object *value, object *type) {
    return type_of(value) == type || python.is_instance(value, type) == 1;
}

static object *complain(const char *text) {
    python.set_error(python.error, text);
    return NULL;
}

/* Puts where a value begins into its slot; it is an array, or a window (array, first element).
   Returns 0 where it is neither. */
static int find_value(object *value, int64_t size, void **slot) {
    object *array = value;
    int64_t start = 0;
    if (type_of(value) != python.array_type && is(value, python.tuple_type)) {
        if (python.tuple_size(value) != 2) return 0;
        array = python.tuple_item(value, 0);
        start = python.as_integer(python.tuple_item(value, 1));
    }
    if (start < 0 || !is(array, python.array_type)) return 0;
    *slot = data_of(array) + start * size;
    return 1;
}

/* Runs on a list with a value for each of the call's slots, in `slots` with room for all. */
static object *launch_in(const al_call *call, object *values, void **slots) {
    for (int64_t i = 0; i < call->values; i++)
        if (!find_value(python.list_item(values, i), call->sizes[i], slots + i))
            return complain("launch: a value is of another type, expected an ndarray or a window "
                            "(ndarray, start)");
    void *thread = call->brief ? NULL : python.save_thread();
    int code = run_call(call, slots);
    if (!call->brief) python.restore_thread(thread);
    return code == NO_MEMORY ? python.no_memory() : python.from_integer(code);
}

enum { FEW_SLOTS = 1 << 10 }; /* as many are on the stack, more are not */

/* A builtin function of Python's: `self` is an array of bytes that holds an al_call, `values` a list
   with a value for each of its slots. Returns what `run` returned. */
static object *launch(object *self, object *values) {
    const al_call *call = (const al_call *)data_of(self);
    if (python.list_size(values) != call->values)
        return complain("launch: values are not a list, or not as many as the kernel has");
    int64_t count = call->values + call->constants + 1;
    if (count <= FEW_SLOTS) {
        void *few[count];
        return launch_in(call, values, few);
    }
    void **many = malloc(count * sizeof *many);
    object *result = many ? launch_in(call, values, many) : python.no_memory();
    free(many);
    return result;
}

typedef struct method { /* PyMethodDef */
    const char *name;
    object *(*function)(object *, object *);
    int flags;
    const char *documentation;
} method;

enum { ONE_OBJECT = 8 }; /* METH_O */

/* What PyCFunction_NewEx makes functions of. */
const method *al_method(const al_python *given) {
    static const method launching = {"launch", launch, ONE_OBJECT, "Runs a kernel on values."};
    python = *given;
    return &launching;
}

/* What an object has there: looked at before anything is launched. */
void *al_pointer_at(object *value, int64_t offset) { return *(void **)((char *)value + offset); }
