/*
 * What the warm Node cannot do in JavaScript; see docs/warm.md.
 *
 * Two forks of one machine hold the same state of OpenSSL's generator, and
 * Node has no call to reseed it. Its binary exports OpenSSL's functions and
 * Node-API, so this file needs neither headers of theirs nor a library: the
 * few declarations below are the stable ABI of both.
 *
 * SIGURG says that the machine has a new generation while the program runs.
 * The handler counts, before the program's next instruction; the generators
 * in JavaScript look at the count. The thread reseeds OpenSSL, which no signal
 * handler may, and answers the agent.
 *
 * native_amd64.node is made from this by `go generate`.
 */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

typedef struct napi_env__ *napi_env;
typedef struct napi_value__ *napi_value;
typedef struct napi_callback_info__ *napi_callback_info;
typedef napi_value (*napi_callback)(napi_env, napi_callback_info);
typedef void (*napi_finalize)(napi_env, void *, void *);

int napi_create_function(napi_env, const char *, size_t, napi_callback, void *, napi_value *);
int napi_set_named_property(napi_env, napi_value, const char *, napi_value);
int napi_create_external_arraybuffer(napi_env, void *, size_t, napi_finalize, void *, napi_value *);
int napi_get_cb_info(napi_env, napi_callback_info, size_t *, napi_value *, napi_value *, void **);
int napi_get_buffer_info(napi_env, napi_value, void **, size_t *);
int napi_get_value_int32(napi_env, napi_value, int32_t *);
int napi_get_boolean(napi_env, int, napi_value *);
int napi_create_int32(napi_env, int32_t, napi_value *);

int thaw_keep(void); /* keeper.c */

void RAND_add(const void *buf, int num, double randomness);
int RAND_poll(void);
int RAND_status(void);

/* One count for each thread that asks would need a registry; all share one. */
static volatile uint32_t generations;
static sem_t renewed;
static int control = -1;
static pid_t owner;

static void on_urgent(int number) {
	int saved = errno;
	(void)number;
	__atomic_add_fetch(&generations, 1, __ATOMIC_SEQ_CST);
	sem_post(&renewed);
	errno = saved;
}

static const char answer[] = "{\"op\":\"generation\",\"number\":0}";

static void *reseed_thread(void *arg) {
	char frame[4 + sizeof answer - 1] = {sizeof answer - 1};
	(void)arg;
	memcpy(frame + 4, answer, sizeof answer - 1);
	for (;;) {
		ssize_t n;
		while (sem_wait(&renewed) != 0)
			;
		if (RAND_poll() != 1 || getpid() != owner)
			continue;
		do
			n = send(control, frame, sizeof frame, MSG_DONTWAIT | MSG_NOSIGNAL);
		while (n < 0 && errno == EINTR);
	}
	return 0;
}

/* start(fd): takes SIGURG and starts the thread, which answers on fd. */
static napi_value start(napi_env env, napi_callback_info info) {
	size_t argc = 1;
	napi_value argv[1], result = 0;
	struct sigaction action;
	sigset_t all, old;
	pthread_attr_t attr;
	pthread_t thread;
	int ok = 0;

	if (control >= 0 || napi_get_cb_info(env, info, &argc, argv, 0, 0) != 0 || argc != 1)
		goto out;
	if (napi_get_value_int32(env, argv[0], &control) != 0 || sem_init(&renewed, 0, 0) != 0)
		goto out;
	owner = getpid();
	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, 1 << 20);
	/* Signals are for Node's own threads. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &old);
	ok = pthread_create(&thread, &attr, reseed_thread, 0) == 0;
	pthread_sigmask(SIG_SETMASK, &old, 0);
	if (!ok)
		goto out;
	memset(&action, 0, sizeof action);
	action.sa_handler = on_urgent;
	action.sa_flags = SA_RESTART;
	sigfillset(&action.sa_mask);
	ok = sigaction(SIGURG, &action, 0) == 0;
out:
	napi_get_boolean(env, ok, &result);
	return result;
}

/* reseed(buffer): adds the buffer and the kernel's bytes to OpenSSL's
 * generator, and counts. Returns whether the generator is seeded. */
static napi_value reseed(napi_env env, napi_callback_info info) {
	size_t argc = 1, length = 0;
	napi_value argv[1], result = 0;
	void *data = 0;
	int ok = 0;

	if (napi_get_cb_info(env, info, &argc, argv, 0, 0) == 0 && argc == 1 &&
	    napi_get_buffer_info(env, argv[0], &data, &length) == 0 && length <= 4096) {
		RAND_add(data, (int)length, (double)length);
		ok = RAND_poll() == 1 && RAND_status() == 1;
		__atomic_add_fetch(&generations, 1, __ATOMIC_SEQ_CST);
	}
	napi_get_boolean(env, ok, &result);
	return result;
}

/* keep(): starts a keeper and returns its process id. */
static napi_value keep(napi_env env, napi_callback_info info) {
	napi_value result = 0;
	(void)info;
	napi_create_int32(env, thaw_keep(), &result);
	return result;
}

/* leave leaves the array buffer's memory alone: it is this library's. */
static void leave(napi_env env, void *data, void *hint) {
	(void)env;
	(void)data;
	(void)hint;
}

static void export_function(napi_env env, napi_value exports, const char *name, napi_callback f) {
	napi_value value;
	if (napi_create_function(env, name, strlen(name), f, 0, &value) == 0)
		napi_set_named_property(env, exports, name, value);
}

__attribute__((visibility("default"))) int32_t node_api_module_get_api_version_v1(void) { return 8; }

__attribute__((visibility("default"))) napi_value napi_register_module_v1(napi_env env, napi_value exports) {
	napi_value count;
	export_function(env, exports, "start", start);
	export_function(env, exports, "reseed", reseed);
	export_function(env, exports, "keep", keep);
	if (napi_create_external_arraybuffer(env, (void *)&generations, sizeof generations, leave, 0, &count) == 0)
		napi_set_named_property(env, exports, "count", count);
	return exports;
}
