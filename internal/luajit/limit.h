/* Memory accounting and the hook by which a run is stopped. */
#ifndef PERIGEE_LIMIT_H
#define PERIGEE_LIMIT_H

#include "vm.h"

void *pg_alloc(void *vm, void *ptr, size_t osize, size_t nsize);

#endif
