/* The pool that the members of a fleet share. See README.md of squall-pool-c. */

#ifndef SQUALL_POOL_H
#define SQUALL_POOL_H

/* Written by `cargo run -p xtask -- header`. Change src/ffi/mod.rs instead. */

/**
 * The bytes of a key as text, with its end.
 */
#define POOL_KEY_BYTES 33

/**
 * The outcome of a call.
 */
typedef enum {
    /**
     * The call has done its work.
     */
    SQUALL_CODE_OK = 0,
    /**
     * The pool has no element.
     */
    SQUALL_CODE_EMPTY = 1,
    /**
     * An argument is null, negative, or no text of its form.
     */
    SQUALL_CODE_ARGUMENT = 2,
    /**
     * No living node or pool has this pointer. It has ended, or is of another kind.
     */
    SQUALL_CODE_HANDLE = 3,
    /**
     * An element or a text is larger than allowed. The call had no effect.
     */
    SQUALL_CODE_TOO_LARGE = 4,
    /**
     * The time is over. A get has taken no element, and an add has added none. A shutdown or a leave goes
     * on: call it again.
     */
    SQUALL_CODE_TIMED_OUT = 5,
    /**
     * The time of an add is over, or the node was taken for dead. The element may come into the pool.
     */
    SQUALL_CODE_UNKNOWN = 6,
    /**
     * The facade leaves its pool, or the node has left its group.
     */
    SQUALL_CODE_CLOSED = 7,
    /**
     * The group refuses it: the name is taken, or the key is wrong.
     */
    SQUALL_CODE_REFUSED = 8,
    /**
     * The system has no thread, file or name for it.
     */
    SQUALL_CODE_SYSTEM = 9,
    /**
     * The process is the child of a fork, and its parent has the nodes.
     */
    SQUALL_CODE_FORKED = 10,
    /**
     * A fault of the library.
     */
    SQUALL_CODE_PANIC = 11,
} SquallCode;

/**
 * The way in which elements move between facades.
 */
typedef enum {
    /**
     * `POOL_STRATEGY_DIRECTORY`.
     */
    POOL_STRATEGY_DEFAULT = 0,
    /**
     * All elements are at one facade, the master. It is the oldest one.
     */
    POOL_STRATEGY_CENTRALIZED = 1,
    /**
     * A facade without elements takes one element of another facade.
     */
    POOL_STRATEGY_DISTRIBUTED = 2,
    /**
     * A facade without elements takes up to `bulk` elements of another facade.
     */
    POOL_STRATEGY_BULK_TRANSFER = 3,
    /**
     * Bulk transfers, and an idle facade with few elements takes some before it needs them.
     */
    POOL_STRATEGY_BACKGROUND_PULL = 4,
    /**
     * Bulk transfers, and an idle facade with many elements gives some to the next facade.
     */
    POOL_STRATEGY_BACKGROUND_PUSH = 5,
    /**
     * Like `POOL_STRATEGY_BACKGROUND_PUSH`, but gives only to a facade with far fewer elements.
     */
    POOL_STRATEGY_ESTIMATED_PUSH = 6,
    /**
     * Bulk transfers. A facade without elements asks the master for another one with elements.
     */
    POOL_STRATEGY_DIRECTORY = 7,
} PoolStrategy;

/**
 * A facade of a pool, at a node. Opaque: the pointer is a number.
 */
typedef struct Pool Pool;

/**
 * A node of a group: processes join a group by a node each. Opaque: the pointer is a number.
 */
typedef struct SquallNode SquallNode;

/**
 * Options of a pool. Zero means the default, so set all bytes to zero first. All facades of a pool have
 * equal options.
 *
 * Later versions of the library have more options at the end. A version refuses a larger struct whose
 * further bytes are not zero.
 */
typedef struct {
    /**
     * `sizeof(PoolOptions)`.
     */
    int size;
    /**
     * A `PoolStrategy`.
     */
    int strategy;
    /**
     * The most elements of one transfer. Default: 50.
     */
    int bulk;
    /**
     * The number of idle events after which an idle facade acts once. Default: 100. An event comes after
     * 10 ms without work, and later ones up to 640 ms apart.
     */
    int idle_events;
    /**
     * The number of elements below which an idle facade takes some. Default: 1,024.
     */
    int pull_below;
    /**
     * The number of elements above which an idle facade gives some. Default: 20,000.
     */
    int push_above;
    /**
     * The change of its number of elements after which a facade tells the master. Default: 500.
     */
    int estimate_step;
    /**
     * The least difference to the estimate of a facade that is given elements. Default: 2,048.
     */
    int push_margin;
    /**
     * The number of its idle acts after which the master sends new estimates to all. Default: 1.
     */
    int broadcast_acts;
} PoolOptions;

/**
 * A number of elements.
 */
typedef int PoolSize_t;

/**
 * The location of a facade. Opaque. Programs may copy the bytes, and send them to other processes.
 */
typedef struct {
    /**
     * Its bytes.
     */
    char data[64];
} PoolLocation;

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/**
 * Writes the text of a random key for a new group. It is secret. `size` is at least `POOL_KEY_BYTES`.
 * Returns 0, or -1 on an error.
 *
 * # Safety
 * If `key` is not null, it points to `size` bytes.
 */
int squallGroupKey(int size,
                   char *key);

/**
 * Makes a group with one node. Other processes of the machine reach it by its host name.
 * Returns NULL on an error: a process of this user has the host name, or the key is no key.
 *
 * # Safety
 * The arguments that are not null are texts with a zero at their end.
 */
SquallNode *squallNodeFound(const char *host_name, const char *group_key);

/**
 * Makes a node, and joins the group of another node of the machine, `seed_name`. `host_name` may be NULL:
 * the node then has a random one. Waits up to 30 s. Returns NULL on an error.
 *
 * # Safety
 * The arguments that are not null are texts with a zero at their end.
 */
SquallNode *squallNodeJoin(const char *host_name,
                           const char *group_key,
                           const char *seed_name);

/**
 * Writes the text of the node's right to names. It is secret. That of the group's first node takes
 * `POOL_KEY_BYTES`; other nodes have no right at first. Returns 0, or -1 on an error.
 *
 * # Safety
 * If `right` is not null, it points to `size` bytes.
 */
int squallNodeRight(SquallNode *node, int size, char *right);

/**
 * Gives a node the right to names of another node, so that it can create pools. The group looks at the right
 * once it is used. Returns 0, or -1 on an error.
 *
 * # Safety
 * If `right` is not null, it is a text with a zero at its end.
 */
int squallNodeTakeRight(SquallNode *node,
                        const char *right);

/**
 * Leaves the group. Facades of the node give their elements to others first. Then `node` and its pools
 * end: their pointers are unknown from then on.
 * Returns 0; or -1 if 30 s are over, and the node goes on leaving, or on another error.
 *
 * Shut the pools down first to learn of their ends.
 */
int squallNodeLeave(SquallNode *node);

/**
 * Ends a node and its pools at once, as a death would: the elements of its facades are lost. Ends after the
 * calls of other threads with the node. Returns 0, or -1 if the node is unknown.
 */
int squallNodeFree(SquallNode *node);

/**
 * Creates a pool and its first facade, at a node with a right to names. Returns NULL on an error, also if
 * the pool exists. `name` is a path as `/jobs`. The pool has the default options. In a group without a
 * leader, waits up to 2 min.
 *
 * Source: Wentzlaff 2012, Listing 4.1. The thesis has one group, and takes a new mailbox as the name.
 *
 * # Safety
 * If `name` is not null, it is a text with a zero at its end.
 */
Pool *poolCreate(SquallNode *node,
                 const char *name);

/**
 * Creates a pool with options. Else like `poolCreate`. If `options` is NULL, they are the default ones.
 *
 * # Safety
 * If `name` is not null, it is a text with a zero at its end. If `options` is not null, it points to as many
 * bytes as its first field says.
 */
Pool *poolCreateWith(SquallNode *node,
                     const char *name,
                     const PoolOptions *options);

/**
 * Makes a further facade of a pool, at a node. `key` is from `poolKey` of another facade. Returns NULL on an
 * error: no such pool exists, the key is wrong, or the pool has other options than the default ones. In a
 * group without a leader, waits up to 1 min.
 *
 * Source: Wentzlaff 2012, Listing 4.1. The name stands for the master's mailbox, and the key for the
 * object number.
 *
 * # Safety
 * The arguments that are not null are texts with a zero at their end.
 */
Pool *poolInitFacade(SquallNode *node,
                     const char *name,
                     const char *key);

/**
 * Makes a further facade of a pool with options, which are those of its other facades. Else like
 * `poolInitFacade`. If `options` is NULL, they are the default ones.
 *
 * # Safety
 * The texts that are not null have a zero at their end. If `options` is not null, it points to as many bytes
 * as its first field says.
 */
Pool *poolInitFacadeWith(SquallNode *node,
                         const char *name,
                         const char *key,
                         const PoolOptions *options);

/**
 * Writes the text of the pool's key, for `poolInitFacade`. It is secret. `size` is at least
 * `POOL_KEY_BYTES`. Returns 0, or -1 on an error.
 *
 * # Safety
 * If `key` is not null, it points to `size` bytes.
 */
int poolKey(Pool *pool, int size, char *key);

/**
 * Sets the longest time of later adds, gets, sizes and shutdowns of this facade, in milliseconds. Default:
 * 30,000. With 0, a call ends with success only if it need not wait.
 * Returns 0, or -1 on an error.
 */
int poolSetLimit(Pool *pool,
                 int limit_ms);

/**
 * Adds an element: a copy of `size` bytes, at most 1,044,480. Returns 0, or -1 on an error.
 *
 * Source: Wentzlaff 2012, Listing 4.2.
 *
 * # Safety
 * If `value` is not null, it points to `size` bytes. Null is refused, unless `size` is 0.
 */
int poolAdd(Pool *pool, int size, const void *value);

/**
 * Takes any element, and writes it to `found_value`. Returns its size; -1 if the pool has no element, or on
 * an error, which `squallLastCode` tells apart; or -2 if the element that was found is larger than `size`.
 * It then stays in the pool, and the buffer is unchanged.
 *
 * Source: Wentzlaff 2012, Listing 4.2.
 *
 * # Safety
 * If `found_value` is not null, it points to `size` bytes. Null is refused, unless `size` is 0.
 */
int poolGet(Pool *pool,
            int size,
            void *found_value);

/**
 * Estimates the number of elements: the sum of the answers of all facades, one after the other. Returns it,
 * at most `INT_MAX`, or -1 on an error.
 *
 * Source: Wentzlaff 2012, Listing 4.2.
 */
PoolSize_t poolSize(Pool *pool);

/**
 * Finds the location of a facade. It stays valid until the handle of the facade ends. Returns NULL on an
 * error. If the group took the node for dead, the facade gets another location.
 *
 * Source: Wentzlaff 2012, Listing 4.3.
 */
PoolLocation *poolFindLocation(Pool *pool);

/**
 * Tells the facade at `pool_location_from` its distance to the one at `pool_location_to`, in any unit.
 * `pool` is any facade of the pool. Facades without elements ask near ones first. Each distance is 10,000
 * otherwise. A hint: it may be lost. `squallLastCode` tells of wrong arguments.
 *
 * Source: Wentzlaff 2012, Listing 4.3.
 *
 * # Safety
 * The arguments that are not null point to locations.
 */
void poolSetLocality(Pool *pool,
                     const PoolLocation *pool_location_from,
                     const PoolLocation *pool_location_to,
                     int metric);

/**
 * Shuts a facade down, and gives its elements to the others. Returns 0 if it has left; -1 if it was the last
 * one, and the remaining elements are gone; or -2 if it cannot. After 0 and -1 the pointer is unknown. After
 * -2 with `SQUALL_CODE_TIMED_OUT` the facade goes on leaving, and a further call waits for the same end.
 *
 * If several facades are shut down at a time, at least one of them returns -1. In a group without a leader,
 * the last one waits up to 30 s more than its limit.
 *
 * Source: Wentzlaff 2012, Listing 4.4.
 */
int poolShutdown(Pool *pool);

/**
 * Returns the code of this thread's last call.
 */
SquallCode squallLastCode(void);

/**
 * Returns a sentence about the failure of this thread's last call: its object, the reason, and a remedy.
 * Empty after a success. The text is valid until the next call of this thread.
 */
const char *squallLastError(void);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* SQUALL_POOL_H */
