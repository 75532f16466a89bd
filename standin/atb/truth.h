// The ground-truth log: a line of text for everything that happens, written before the call goes on.
#ifndef STANDIN_ATB_TRUTH_H
#define STANDIN_ATB_TRUTH_H

namespace standin {
// Whether anybody wants a log.
bool TruthIsWanted();
// Appends one line to `<pid>.atb` in the directory that STANDIN_LOG names.
void Tell(const char *format, ...) __attribute__((format(printf, 1, 2)));
} // namespace standin

#endif
