// A mapped file that is cut off while it is in use kills the process by SIGBUS; this ends it with a sentence instead.
// Windows has no such signal: there the function does nothing.
#include <stdint.h>

#include "border.h"

#ifndef _WIN32
#include <signal.h>
#include <string.h>
#include <unistd.h>

namespace {

int code_at_end = 1;

constexpr char kSentence[] =
    "polyformer: A file that was being read was cut off, or its disk failed. Restore the file from a copy or make it "
    "again, and run polyformer verify.\n";

void end_with_a_sentence(int) {
    const ssize_t written = write(STDERR_FILENO, kSentence, sizeof(kSentence) - 1);
    _exit(written < 0 ? 1 : code_at_end);
}

}  // namespace
#endif

extern "C" {

int polyformer_catch_bus_errors(int code) try {
#ifdef _WIN32
    (void)code;
    return kDone;
#else
    struct sigaction action;
    memset(&action, 0, sizeof(action));
    action.sa_handler = end_with_a_sentence;
    sigemptyset(&action.sa_mask);
    code_at_end = code;
    return sigaction(SIGBUS, &action, nullptr) == 0 ? kDone : kFailed;
#endif
}
POLYFORMER_BORDER

}
