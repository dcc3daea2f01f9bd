/* SPDX-License-Identifier: Apache-2.0
 *
 * The faults: lines of text, read again whenever the file has changed. GPU is an
 * index or * for all, CALL the name of a call without its version.
 *
 *   lost GPU             every call about it answers NVML_ERROR_GPU_IS_LOST
 *   gone GPU             the driver no longer lists it
 *   down GPU LINK        the NVLink is down (LINK * for all)
 *   phantom GPU LINKS    links up to this number do not exist and say "disabled"
 *   fail CALL GPU CODE   the call answers this nvmlReturn_t
 *   hang CALL GPU        the call returns when the line is gone
 *   remap GPU ROWS       memory rows: 1 wait for a reset, 2 cannot be remapped
 *   recover GPU ACTION   the driver asks for this nvmlDeviceGpuRecoveryAction_t
 *   fabric GPU STATE     its NVSwitch fabric is in this NVML_GPU_FABRIC_STATE
 *   mig GPU SLICES       it is in MIG mode, with so many MIG devices of one compute slice
 *   xid NUMBER GPU       an Xid event; lines are only ever added
 */
#include "fake.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_FAULTS = 256, POLL_US = 10000 };

struct fault {
	char kind[16];
	char call[64];
	int gpu;
	unsigned long long value; /* link, number of links, code, state or Xid */
	bool all_links;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct fault faults[MAX_FAULTS]; /* guarded by lock */
static int count;                       /* guarded by lock */
static struct stat seen;                /* of the file as it was read, guarded by lock */

static int gpu_of(const char *text) { return strcmp(text, "*") == 0 ? ANY : atoi(text); }

static bool read_fault(const char *line, struct fault *f)
{
	char a[64] = "", b[64] = "", c[64] = "";
	int fields = sscanf(line, "%15s %63s %63s %63s", f->kind, a, b, c);

	if (strcmp(f->kind, "lost") == 0 || strcmp(f->kind, "gone") == 0) {
		f->gpu = gpu_of(a);
		return fields == 2;
	}
	if (strcmp(f->kind, "down") == 0 || strcmp(f->kind, "phantom") == 0 || strcmp(f->kind, "remap") == 0 ||
	    strcmp(f->kind, "recover") == 0 || strcmp(f->kind, "fabric") == 0 || strcmp(f->kind, "mig") == 0) {
		f->gpu = gpu_of(a);
		f->all_links = strcmp(b, "*") == 0;
		f->value = strtoull(b, NULL, 10);
		return fields == 3;
	}
	if (strcmp(f->kind, "xid") == 0) {
		f->value = strtoull(a, NULL, 10);
		f->gpu = gpu_of(b);
		return fields == 3;
	}
	snprintf(f->call, sizeof f->call, "%s", a);
	f->gpu = gpu_of(b);
	f->value = strtoull(c, NULL, 10);
	return (strcmp(f->kind, "fail") == 0 && fields == 4) || (strcmp(f->kind, "hang") == 0 && fields == 3);
}

/* reload reads the file if it is another than before. The caller holds the lock. */
static void reload(void)
{
	const char *path = getenv("FAKENVML_FAULTS");
	struct stat now;
	char line[256];
	FILE *f;

	if (path == NULL || stat(path, &now) != 0) {
		count = 0;
		memset(&seen, 0, sizeof seen);
		return;
	}
	if (now.st_ino == seen.st_ino && now.st_size == seen.st_size && now.st_mtim.tv_sec == seen.st_mtim.tv_sec &&
	    now.st_mtim.tv_nsec == seen.st_mtim.tv_nsec)
		return;
	f = fopen(path, "re");
	if (f == NULL)
		return; /* it was replaced just now; the next call reads it */
	seen = now;
	count = 0;
	while (fgets(line, sizeof line, f) != NULL) {
		if (line[0] == '\n' || line[0] == '#')
			continue;
		if (count == MAX_FAULTS) {
			fprintf(stderr, "fake NVML: %s: has more than %d faults; the rest is left out\n", path, MAX_FAULTS);
			break;
		}
		memset(&faults[count], 0, sizeof faults[count]);
		if (read_fault(line, &faults[count]))
			count++;
		else
			fprintf(stderr, "fake NVML: %s: cannot read the line: %s", path, line);
	}
	fclose(f);
}

/* find copies the newest fault of a kind about a call (NULL for any) and a GPU. */
static bool find(const char *kind, const char *call, int gpu, struct fault *out)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	reload();
	for (int i = 0; i < count; i++) {
		const struct fault *f = &faults[i];
		if (strcmp(f->kind, kind) == 0 && (call == NULL || strcmp(f->call, call) == 0) && (f->gpu == ANY || f->gpu == gpu)) {
			*out = *f;
			found = true;
		}
	}
	pthread_mutex_unlock(&lock);
	return found;
}

nvmlReturn_t enter(const char *call, int gpu)
{
	struct fault f;

	while (find("hang", call, gpu, &f))
		usleep(POLL_US);
	if (find("fail", call, gpu, &f))
		return (nvmlReturn_t)f.value;
	if (gpu != ANY && gpu_lost(gpu))
		return NVML_ERROR_GPU_IS_LOST;
	return NVML_SUCCESS;
}

bool gpu_lost(int gpu)
{
	struct fault f;
	return find("lost", NULL, gpu, &f) || gpu_gone(gpu);
}

bool gpu_gone(int gpu)
{
	struct fault f;
	return find("gone", NULL, gpu, &f);
}

unsigned int gpu_state(const char *kind, int gpu, unsigned int sound)
{
	struct fault f;
	return find(kind, NULL, gpu, &f) ? (unsigned int)f.value : sound;
}

enum link_state link_state(int gpu, int link)
{
	enum link_state state = link < machine.gpu[gpu].links ? LINK_UP : LINK_ABSENT;

	pthread_mutex_lock(&lock);
	reload();
	for (int i = 0; i < count; i++) {
		const struct fault *f = &faults[i];
		if (f->gpu != ANY && f->gpu != gpu)
			continue;
		if (strcmp(f->kind, "down") == 0 && state == LINK_UP && (f->all_links || (int)f->value == link))
			state = LINK_DOWN;
		if (strcmp(f->kind, "phantom") == 0 && state == LINK_ABSENT && link < (int)f->value)
			state = LINK_DOWN;
	}
	pthread_mutex_unlock(&lock);
	return state;
}

int count_xids(void)
{
	int n = 0;

	pthread_mutex_lock(&lock);
	reload();
	for (int i = 0; i < count; i++)
		n += strcmp(faults[i].kind, "xid") == 0;
	pthread_mutex_unlock(&lock);
	return n;
}

bool xid_at(int position, int *gpu, unsigned long long *xid)
{
	bool found = false;

	pthread_mutex_lock(&lock);
	reload();
	for (int i = 0; i < count && !found; i++) {
		if (strcmp(faults[i].kind, "xid") != 0 || position-- > 0)
			continue;
		*gpu = faults[i].gpu;
		*xid = faults[i].value;
		found = true;
	}
	pthread_mutex_unlock(&lock);
	return found;
}
