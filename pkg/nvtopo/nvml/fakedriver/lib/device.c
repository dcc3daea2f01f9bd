/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls about one GPU.
 */
#include "fake.h"

#include <stdio.h>
#include <string.h>

/* BEGIN answers for a library that is not initialised, for faults, and for a
 * GPU that is lost. */
#define BEGIN(call, device)                                    \
	do {                                                   \
		if (!initialised())                            \
			return NVML_ERROR_UNINITIALIZED;       \
		if ((device).handle == NULL)                          \
			return NVML_ERROR_INVALID_ARGUMENT;    \
		nvmlReturn_t ret = enter(call, (device).handle->index); \
		if (ret != NVML_SUCCESS)                       \
			return ret;                            \
	} while (0)

static nvmlReturn_t copy(const char *value, char *out, unsigned int length)
{
	return (unsigned int)snprintf(out, length, "%s", value) < length ? NVML_SUCCESS : NVML_ERROR_INSUFFICIENT_SIZE;
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *uuid, unsigned int length)
{
	BEGIN("nvmlDeviceGetUUID", device);
	return copy(device.handle->uuid, uuid, length);
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *name, unsigned int length)
{
	BEGIN("nvmlDeviceGetName", device);
	return copy(device.handle->name, name, length);
}

nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned int *index)
{
	BEGIN("nvmlDeviceGetIndex", device);
	*index = (unsigned int)device.handle->index;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned int *minor)
{
	BEGIN("nvmlDeviceGetMinorNumber", device);
	*minor = (unsigned int)device.handle->index;
	return NVML_SUCCESS;
}

/* describe fills in a PCI address in both of its forms. */
static void describe(const char *bus, nvmlPciInfo_t *pci)
{
	memset(pci, 0, sizeof *pci);
	snprintf(pci->busId, sizeof pci->busId, "%s", bus);
	sscanf(bus, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
	snprintf(pci->busIdLegacy, sizeof pci->busIdLegacy, "%04X:%02X:%02X.0", pci->domain & 0xffff, pci->bus & 0xff,
		 pci->device & 0xff);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *pci)
{
	BEGIN("nvmlDeviceGetPciInfo", device);
	describe(device.handle->bus, pci);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *memory)
{
	BEGIN("nvmlDeviceGetMemoryInfo", device);
	memory->total = memory->free = device.handle->memory;
	memory->used = 0;
	return NVML_SUCCESS;
}

static unsigned int slices_of(nvmlDevice_t device)
{
	unsigned int n = gpu_state("mig", device.handle->index, 0);

	return n < MAX_SLICES ? n : MAX_SLICES;
}

/* MIG exists on the data centre GPUs from Ampere on, whose minor version is 0. */
nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned int *current, unsigned int *pending)
{
	BEGIN("nvmlDeviceGetMigMode", device);
	*current = *pending = slices_of(device) > 0 ? NVML_DEVICE_MIG_ENABLE : NVML_DEVICE_MIG_DISABLE;
	return device.handle->major >= 8 && device.handle->minor == 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t device, unsigned int *count)
{
	BEGIN("nvmlDeviceGetMaxMigDeviceCount", device);
	*count = slices_of(device) > 0 ? MAX_SLICES : 0;
	return NVML_SUCCESS;
}

/* The numbers of MIG devices are those from the end, so that there is a gap before them. */
nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t device, unsigned int index, nvmlDevice_t *mig)
{
	BEGIN("nvmlDeviceGetMigDeviceHandleByIndex", device);
	if (index >= MAX_SLICES || index < MAX_SLICES - slices_of(device))
		return NVML_ERROR_NOT_FOUND;
	mig->handle = &machine.slice[device.handle->index][index];
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes)
{
	BEGIN("nvmlDeviceGetAttributes", device);
	if (!device.handle->slice)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(attributes, 0, sizeof *attributes);
	attributes->gpuInstanceSliceCount = attributes->computeInstanceSliceCount = 1;
	attributes->memorySizeMB = device.handle->memory >> 20;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major, int *minor)
{
	BEGIN("nvmlDeviceGetCudaComputeCapability", device);
	*major = device.handle->major;
	*minor = device.handle->minor;
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t device, unsigned int *generation)
{
	BEGIN("nvmlDeviceGetMaxPcieLinkGeneration", device);
	*generation = device.handle->pcie_gen;
	return device.handle->pcie_gen > 0 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuTopologyLevel_t *level)
{
	BEGIN("nvmlDeviceGetTopologyCommonAncestor", a);
	BEGIN("nvmlDeviceGetTopologyCommonAncestor", b);
	*level = (nvmlGpuTopologyLevel_t)a.handle->ancestor[b.handle->index];
	return a.handle->ancestor[b.handle->index] != ANY ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t device, unsigned int *correctable, unsigned int *uncorrectable,
				       unsigned int *pending, unsigned int *failure)
{
	BEGIN("nvmlDeviceGetRemappedRows", device);
	unsigned int rows = gpu_state("remap", device.handle->index, 0);
	*correctable = *uncorrectable = 0;
	*pending = rows & 1;
	*failure = rows >> 1 & 1;
	return device.handle->major >= 8 ? NVML_SUCCESS : NVML_ERROR_NOT_SUPPORTED;
}

/* Only the recovery action is known. */
nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t device, int count, nvmlFieldValue_t *values)
{
	BEGIN("nvmlDeviceGetFieldValues", device);
	for (int i = 0; i < count; i++) {
		values[i].nvmlReturn = NVML_ERROR_NOT_SUPPORTED;
		if (values[i].fieldId != NVML_FI_DEV_GET_GPU_RECOVERY_ACTION)
			continue;
		values[i].nvmlReturn = NVML_SUCCESS;
		values[i].valueType = NVML_VALUE_TYPE_UNSIGNED_INT;
		values[i].value.uiVal = gpu_state("recover", device.handle->index, NVML_GPU_RECOVERY_ACTION_NONE);
	}
	return NVML_SUCCESS;
}
