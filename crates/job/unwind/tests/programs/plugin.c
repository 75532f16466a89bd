/* The plugin unit of random_calls.c. */
#define PREFIX plugin
#include "functions.h"
