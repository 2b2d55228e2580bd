/* The calls that clang makes for `#pragma omp`, carried out by GCC's libgomp.

   zig has clang but no OpenMP library; a box has libgomp, and edged's settings for it (GOMP_SPINCOUNT, pinning) were
   measured with it. llama.cpp uses `parallel num_threads`, `single`, `barrier` and two queries: no more is here, and
   a llama.cpp that wants more does not link (--no-undefined). Layouts: the OpenMP runtime interface of LLVM (kmp.h)
   and the GOMP_* functions of GCC's libgomp manual, both stable. */
#include <stdarg.h>
#include <stdint.h>

extern void GOMP_parallel(void (*body)(void *), void *data, unsigned threads, unsigned flags);
extern void GOMP_barrier(void);
extern _Bool GOMP_single_start(void);
extern int omp_get_thread_num(void);

#define MOST 4
#define HIDDEN __attribute__((visibility("hidden")))

typedef void (*micro)(int32_t *, int32_t *, ...);
struct call { micro body; int count; void *arguments[MOST]; };

static _Thread_local unsigned threads; /* of the next parallel region; 0: as libgomp likes */

static void carry_out(void *data)
{
    struct call *c = data;
    void **a = c->arguments;
    int32_t number = omp_get_thread_num();
    switch (c->count) {
    case 0: c->body(&number, &number); break;
    case 1: c->body(&number, &number, a[0]); break;
    case 2: c->body(&number, &number, a[0], a[1]); break;
    case 3: c->body(&number, &number, a[0], a[1], a[2]); break;
    case 4: c->body(&number, &number, a[0], a[1], a[2], a[3]); break;
    }
}

HIDDEN void __kmpc_fork_call(void *where, int32_t count, micro body, ...)
{
    struct call c = {body, count, {0}};
    unsigned wanted = threads;
    va_list list;
    (void)where;
    if (count < 0 || count > MOST) __builtin_trap();
    va_start(list, body);
    for (int i = 0; i < count; i++) c.arguments[i] = va_arg(list, void *);
    va_end(list);
    threads = 0;
    GOMP_parallel(carry_out, &c, wanted, 0);
}

HIDDEN void __kmpc_push_num_threads(void *where, int32_t number, int32_t wanted)
{
    (void)where, (void)number;
    threads = wanted > 0 ? (unsigned)wanted : 0;
}

HIDDEN int32_t __kmpc_global_thread_num(void *where) { (void)where; return omp_get_thread_num(); }
HIDDEN void __kmpc_barrier(void *where, int32_t number) { (void)where, (void)number; GOMP_barrier(); }
HIDDEN int32_t __kmpc_single(void *where, int32_t number) { (void)where, (void)number; return GOMP_single_start(); }
HIDDEN void __kmpc_end_single(void *where, int32_t number) { (void)where, (void)number; }
