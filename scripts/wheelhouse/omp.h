/* What llama.cpp uses of it. */
#pragma once
#ifdef __cplusplus
extern "C" {
#endif
extern int omp_get_num_threads(void);
extern int omp_get_thread_num(void);
#ifdef __cplusplus
}
#endif
