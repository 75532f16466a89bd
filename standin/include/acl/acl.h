/* AscendCL on the stand-in device: all of it in one include, as programs expect. */
#ifndef STANDIN_ACL_ACL_H
#define STANDIN_ACL_ACL_H

#include "acl_base.h"
#include "acl_rt.h"

#ifdef __cplusplus
extern "C" {
#endif

aclError aclInit(const char *configPath);
aclError aclFinalize(void);

#ifdef __cplusplus
}
#endif

#endif
