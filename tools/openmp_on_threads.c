// The few calls of GCC's OpenMP runtime that the kernels make, on plain threads: for the thread sanitizer, which knows
// what a mutex, a barrier and a join are, and nothing of the barriers inside the real runtime.
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

enum { MOST_THREADS = 64, MOST_LOOPS = 256 };

typedef struct {
    bool begun;
    long next, end, step;
} Loop;

typedef struct {
    void (*body)(void*);
    void* data;
    int size;
    pthread_mutex_t lock;
    pthread_barrier_t barrier;
    Loop loops[MOST_LOOPS];  // in the order in which every thread of the team meets them
} Team;

typedef struct {
    Team* team;
    int number, loops_met;
} Member;

static _Thread_local Member self;

static void* run(void* member) {
    Member before = self;
    self = *(Member*)member;
    self.team->body(self.team->data);
    self = before;
    return NULL;
}

void GOMP_parallel(void (*body)(void*), void* data, unsigned threads, unsigned flags) {
    (void)flags;
    Team* team = calloc(1, sizeof(Team));
    team->body = body;
    team->data = data;
    team->size = threads == 0 ? 4 : threads > MOST_THREADS ? MOST_THREADS : (int)threads;
    pthread_mutex_init(&team->lock, NULL);
    pthread_barrier_init(&team->barrier, NULL, (unsigned)team->size);
    Member members[MOST_THREADS];
    pthread_t handles[MOST_THREADS];
    for (int i = 0; i < team->size; i++) members[i] = (Member){team, i, 0};
    for (int i = 1; i < team->size; i++)
        if (pthread_create(&handles[i], NULL, run, &members[i]) != 0) abort();
    run(&members[0]);
    for (int i = 1; i < team->size; i++) pthread_join(handles[i], NULL);
    pthread_barrier_destroy(&team->barrier);
    pthread_mutex_destroy(&team->lock);
    free(team);
}

int omp_get_num_threads(void) { return self.team == NULL ? 1 : self.team->size; }

int omp_get_thread_num(void) { return self.number; }

bool GOMP_loop_nonmonotonic_dynamic_next(long* begin, long* end) {
    Team* team = self.team;
    Loop* loop = &team->loops[self.loops_met - 1];
    pthread_mutex_lock(&team->lock);
    bool more = loop->next < loop->end;
    if (more) {
        *begin = loop->next;
        *end = loop->next + loop->step < loop->end ? loop->next + loop->step : loop->end;
        loop->next = *end;
    }
    pthread_mutex_unlock(&team->lock);
    return more;
}

bool GOMP_loop_nonmonotonic_dynamic_start(long first, long last, long step, long chunk, long* begin, long* end) {
    Team* team = self.team;
    if (step != 1 || self.loops_met == MOST_LOOPS) abort();
    Loop* loop = &team->loops[self.loops_met++];
    pthread_mutex_lock(&team->lock);
    if (!loop->begun) *loop = (Loop){true, first, last, chunk};
    pthread_mutex_unlock(&team->lock);
    return GOMP_loop_nonmonotonic_dynamic_next(begin, end);
}

void GOMP_loop_end(void) { pthread_barrier_wait(&self.team->barrier); }

void GOMP_loop_end_nowait(void) {}

// ---- what shows that the sanitizer sees: one sum that races, and one that does not ----

static void add(void* total) { *(volatile long*)total += omp_get_thread_num(); }

static void add_in_turn(void* total) {
    pthread_mutex_lock(&self.team->lock);
    add(total);
    pthread_mutex_unlock(&self.team->lock);
    GOMP_loop_end();
}

long polyformer_racing_sum(void) {
    long total = 0;
    GOMP_parallel(add, &total, 4, 0);
    return total;
}

long polyformer_sum_in_turn(void) {
    long total = 0;
    GOMP_parallel(add_in_turn, &total, 4, 0);
    return total;
}
