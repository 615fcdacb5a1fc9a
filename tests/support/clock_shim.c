/*
 * Gives one server process a wall clock that a test can step.
 *
 * Loaded with LD_PRELOAD. AIOLIMIT_CLOCK_OFFSET names a file of eight bytes, an int64 in native byte order: microseconds
 * to add to the real time. The file is mapped, so a write to it shows in the very next reading. Redis and Valkey read
 * the wall clock through gettimeofday() and time() alone; the monotonic clock, and with it the server's event loop, is
 * left as it is.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *offset_us;

__attribute__((constructor)) static void map_offset(void) {
    const char *path = getenv("AIOLIMIT_CLOCK_OFFSET");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    void *page;

    if (file < 0) {
        abort(); /* a shim that silently does nothing would make every clock test pass */
    }
    page = mmap(NULL, sizeof *offset_us, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (page == MAP_FAILED) {
        abort();
    }
    offset_us = page;
}

static int64_t shifted_us(void) {
    struct timespec now;

    syscall(SYS_clock_gettime, CLOCK_REALTIME, &now); /* not the library's: that one may call back into us */
    return (int64_t)now.tv_sec * 1000000 + now.tv_nsec / 1000 + (offset_us ? *offset_us : 0);
}

int gettimeofday(struct timeval *restrict out, void *restrict zone) {
    int64_t now = shifted_us();

    (void)zone;
    out->tv_sec = now / 1000000;
    out->tv_usec = now % 1000000;
    return 0;
}

time_t time(time_t *out) {
    time_t seconds = shifted_us() / 1000000;

    if (out) {
        *out = seconds;
    }
    return seconds;
}
