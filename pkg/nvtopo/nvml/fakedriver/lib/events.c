/* SPDX-License-Identifier: Apache-2.0
 *
 * Event sets. A set hears of the Xids that are added to the file of faults after
 * it was made.
 */
#include "fake.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct nvmlEventSet_st {
	int next;                                /* position of the next Xid to look at */
	unsigned long long registered[MAX_GPUS]; /* types of events */
};

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	nvmlReturn_t ret = enter("nvmlEventSetCreate", ANY);
	if (ret != NVML_SUCCESS)
		return ret;
	set->handle = calloc(1, sizeof *set->handle);
	if (set->handle == NULL)
		return NVML_ERROR_MEMORY;
	set->handle->next = count_xids();
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t device, unsigned long long *types)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	*types = nvmlEventTypeXidCriticalError | nvmlEventTypeDoubleBitEccError | nvmlEventTypeSingleBitEccError;
	return enter("nvmlDeviceGetSupportedEventTypes", device.handle->index);
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t device, unsigned long long types, nvmlEventSet_t set)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	nvmlReturn_t ret = enter("nvmlDeviceRegisterEvents", device.handle->index);
	if (ret == NVML_SUCCESS)
		set.handle->registered[device.handle->index] |= types;
	return ret;
}

/* take fills in the next Xid of a registered GPU, if there is one. */
static bool take(nvmlEventSet_t set, nvmlEventData_t *data)
{
	int gpu;
	unsigned long long xid;

	while (xid_at(set.handle->next, &gpu, &xid)) {
		set.handle->next++;
		if (gpu < 0 || gpu >= machine.gpus || (set.handle->registered[gpu] & nvmlEventTypeXidCriticalError) == 0)
			continue;
		memset(data, 0, sizeof *data);
		data->device.handle = &machine.gpu[gpu];
		data->eventType = nvmlEventTypeXidCriticalError;
		data->eventData = xid;
		data->gpuInstanceId = data->computeInstanceId = 0xFFFFFFFF;
		return true;
	}
	return false;
}

static long long now_ms(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000LL + t.tv_nsec / 1000000;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned int timeout)
{
	long long end = now_ms() + timeout;

	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	for (;;) {
		nvmlReturn_t ret = enter("nvmlEventSetWait", ANY);
		if (ret != NVML_SUCCESS)
			return ret;
		if (take(set, data))
			return NVML_SUCCESS;
		if (now_ms() >= end)
			return NVML_ERROR_TIMEOUT;
		usleep(10000);
	}
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set)
{
	free(set.handle);
	return NVML_SUCCESS;
}
