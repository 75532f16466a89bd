/* The archive unit of random_calls.c. */
#define PREFIX archive
#include "functions.h"
