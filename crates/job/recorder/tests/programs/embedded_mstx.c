/* A library that embeds mstx and so has a connection of its own to the tool. */
#include <mstx/ms_tools_ext.h>
#include <stdio.h>

void EMBEDDED_NAME(void) {
    uint64_t tool = 0;
    mstxGetToolId(&tool);
    mstxMarkA(EMBEDDED_TEXT, NULL);
    mstxMarkA(NULL, NULL);
    mstxDomainHandle_t domain = mstxDomainCreateA("test");
    mstxDomainMarkA(domain, EMBEDDED_TEXT " in a domain", NULL);
    mstxDomainRangeEnd(domain, mstxDomainRangeStartA(domain, "range", NULL));
    mstxDomainDestroy(domain);
    mstxRangeEnd(0);
    printf("%s: tool %s\n", EMBEDDED_TEXT, tool ? "there" : "absent");
}
