/* Makes a fast disk slow: loaded with LD_PRELOAD, adds SLOW_SYNC_US microseconds to every fsync and fdatasync. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

static void wait_more(void) {
  const char *text = getenv("SLOW_SYNC_US");
  long microseconds = text ? atol(text) : 0;
  struct timespec pause = {microseconds / 1000000, (microseconds % 1000000) * 1000};
  if (microseconds > 0) nanosleep(&pause, 0);
}

static int call(const char *name, int file) {
  int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, name);
  int result = real(file);
  wait_more();
  return result;
}

int fsync(int file) { return call("fsync", file); }

int fdatasync(int file) { return call("fdatasync", file); }
