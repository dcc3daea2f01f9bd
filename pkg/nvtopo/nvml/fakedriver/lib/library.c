/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls about the library and the machine as a whole.
 */
#include "fake.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static int references; /* guarded by lock */

bool initialised(void)
{
	pthread_mutex_lock(&lock);
	bool yes = references > 0;
	pthread_mutex_unlock(&lock);
	return yes;
}

nvmlReturn_t nvmlInitWithFlags(unsigned int flags)
{
	(void)flags;
	nvmlReturn_t ret = enter("nvmlInit", ANY);
	if (ret != NVML_SUCCESS)
		return ret;
	pthread_mutex_lock(&lock);
	if (references == 0 && !read_machine())
		ret = NVML_ERROR_DRIVER_NOT_LOADED;
	else
		references++;
	pthread_mutex_unlock(&lock);
	return ret;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void)
{
	nvmlReturn_t ret = enter("nvmlShutdown", ANY);
	if (ret != NVML_SUCCESS)
		return ret;
	pthread_mutex_lock(&lock);
	if (references == 0)
		ret = NVML_ERROR_UNINITIALIZED;
	else
		references--;
	pthread_mutex_unlock(&lock);
	return ret;
}

/* The texts of nvml.h for the codes that programs meet here. */
const char *nvmlErrorString(nvmlReturn_t result)
{
	switch (result) {
	case NVML_SUCCESS: return "The operation was successful";
	case NVML_ERROR_UNINITIALIZED: return "NVML was not first initialized with nvmlInit()";
	case NVML_ERROR_INVALID_ARGUMENT: return "A supplied argument is invalid";
	case NVML_ERROR_NOT_SUPPORTED: return "The requested operation is not available on target device";
	case NVML_ERROR_NO_PERMISSION: return "The current user does not have permission for operation";
	case NVML_ERROR_NOT_FOUND: return "A query to find an object was unsuccessful";
	case NVML_ERROR_INSUFFICIENT_SIZE: return "An input argument is not large enough";
	case NVML_ERROR_DRIVER_NOT_LOADED: return "NVIDIA driver is not loaded";
	case NVML_ERROR_TIMEOUT: return "User provided timeout passed";
	case NVML_ERROR_GPU_IS_LOST: return "The GPU has fallen off the bus or has otherwise become inaccessible";
	case NVML_ERROR_RESET_REQUIRED: return "The GPU requires a reset before it can be used again";
	case NVML_ERROR_LIB_RM_VERSION_MISMATCH: return "RM detects a driver/library version mismatch";
	case NVML_ERROR_ARGUMENT_VERSION_MISMATCH: return "The provided version is invalid/unsupported";
	default: return "An internal driver error occurred";
	}
}

static nvmlReturn_t text(const char *call, const char *value, char *out, unsigned int length)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	nvmlReturn_t ret = enter(call, ANY);
	if (ret == NVML_SUCCESS && (unsigned int)snprintf(out, length, "%s", value) >= length)
		return NVML_ERROR_INSUFFICIENT_SIZE;
	return ret;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned int length)
{
	return text("nvmlSystemGetDriverVersion", machine.driver, version, length);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned int length)
{
	return text("nvmlSystemGetNVMLVersion", machine.driver, version, length);
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned int *devices)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	nvmlReturn_t ret = enter("nvmlDeviceGetCount", ANY);
	*devices = 0;
	for (int i = 0; i < machine.gpus; i++)
		*devices += !gpu_gone(i);
	return ret;
}

/* open_gpu opens a GPU for which a handle is asked. */
static nvmlReturn_t open_gpu(const char *call, int i, nvmlDevice_t *device)
{
	device->handle = &machine.gpu[i];
	return enter(call, i);
}

/* The indices of GPUs after one that is gone move up. */
nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned int index, nvmlDevice_t *device)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	for (int i = 0; i < machine.gpus; i++) {
		if (!gpu_gone(i) && index-- == 0)
			return open_gpu("nvmlDeviceGetHandleByIndex", i, device);
	}
	return NVML_ERROR_INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *device)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	for (int i = 0; i < machine.gpus; i++) {
		if (!gpu_gone(i) && strcmp(machine.gpu[i].uuid, uuid) == 0)
			return open_gpu("nvmlDeviceGetHandleByUUID", i, device);
	}
	return NVML_ERROR_NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *bus, nvmlDevice_t *device)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	for (int i = 0; i < machine.gpus; i++) {
		if (!gpu_gone(i) && strcasecmp(machine.gpu[i].bus, bus) == 0)
			return open_gpu("nvmlDeviceGetHandleByPciBusId", i, device);
	}
	return NVML_ERROR_NOT_FOUND;
}
