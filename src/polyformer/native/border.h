// What every exported function returns, and what keeps exceptions of C++ on this side of the border.
#pragma once

#include <new>
#include <stdexcept>

constexpr int kDone = 0;
constexpr int kRefused = 1;  // not compiled for these sizes
constexpr int kOutOfMemory = 2;
constexpr int kFailed = 3;

// The end of an exported function, whose body is a try block. An exception cannot leave a parallel region: code in one
// catches its own, and the function throws again after the region.
#define POLYFORMER_BORDER                                         \
    catch (const std::bad_alloc&) { return kOutOfMemory; }        \
    catch (const std::length_error&) { return kOutOfMemory; }     \
    catch (...) { return kFailed; }
