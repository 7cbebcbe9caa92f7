/* Preloaded into the process of one seed: what it takes for chances of the machine follows from nothing but the order
   in which each thread asks. Hash tables and the choice among what is ready come from there. */
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

static __thread uint64_t state;

static uint64_t next(void)
{
    uint64_t mixed = state += 0x9e3779b97f4a7c15;
    mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9;
    mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111eb;
    return mixed ^ (mixed >> 31);
}

ssize_t getrandom(void *buffer, size_t length, unsigned int flags)
{
    unsigned char *bytes = buffer;
    (void)flags;
    for (size_t at = 0; at < length; at++)
        bytes[at] = (unsigned char)next();
    return (ssize_t)length;
}

int getentropy(void *buffer, size_t length)
{
    getrandom(buffer, length, 0);
    return 0;
}
