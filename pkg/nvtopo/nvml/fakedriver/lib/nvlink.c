/* SPDX-License-Identifier: Apache-2.0
 *
 * The calls about NVLinks and the NVSwitch fabric.
 */
#include "fake.h"

#include <stdio.h>
#include <string.h>

/* begin is the beginning of a call about a link; a link that does not exist is
 * an invalid argument. */
static nvmlReturn_t begin(const char *call, nvmlDevice_t device, unsigned int link)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	if (device.handle == NULL)
		return NVML_ERROR_INVALID_ARGUMENT;
	nvmlReturn_t ret = enter(call, device.handle->index);
	if (ret == NVML_SUCCESS && (link >= MAX_LINKS || link_state(device.handle->index, (int)link) == LINK_ABSENT))
		return NVML_ERROR_INVALID_ARGUMENT;
	return ret;
}

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned int link, nvmlEnableState_t *active)
{
	nvmlReturn_t ret = begin("nvmlDeviceGetNvLinkState", device, link);
	if (ret == NVML_SUCCESS)
		*active = link_state(device.handle->index, (int)link) == LINK_UP ? NVML_FEATURE_ENABLED : NVML_FEATURE_DISABLED;
	return ret;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t device, unsigned int link, nvmlPciInfo_t *pci)
{
	nvmlReturn_t ret = begin("nvmlDeviceGetNvLinkRemotePciInfo", device, link);
	if (ret != NVML_SUCCESS)
		return ret;
	if (link_state(device.handle->index, (int)link) != LINK_UP)
		return NVML_ERROR_NOT_SUPPORTED;
	memset(pci, 0, sizeof *pci);
	snprintf(pci->busId, sizeof pci->busId, "%s", device.handle->link[link].bus);
	sscanf(pci->busId, "%x:%x:%x", &pci->domain, &pci->bus, &pci->device);
	return NVML_SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t device, unsigned int link, nvmlIntNvLinkDeviceType_t *type)
{
	nvmlReturn_t ret = begin("nvmlDeviceGetNvLinkRemoteDeviceType", device, link);
	if (ret != NVML_SUCCESS)
		return ret;
	if (link_state(device.handle->index, (int)link) != LINK_UP)
		return NVML_ERROR_NOT_SUPPORTED;
	*type = device.handle->link[link].type;
	return NVML_SUCCESS;
}

/* reaches says whether an NVLink that is up leads from a to b, itself or by a switch. */
static bool reaches(nvmlDevice_t a, nvmlDevice_t b)
{
	for (int i = 0; i < a.handle->links; i++) {
		if (link_state(a.handle->index, i) == LINK_UP &&
		    (a.handle->link[i].type == NVML_NVLINK_DEVICE_TYPE_SWITCH || strcmp(a.handle->link[i].bus, b.handle->bus) == 0))
			return true;
	}
	return false;
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, nvmlGpuP2PCapsIndex_t index, nvmlGpuP2PStatus_t *status)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	nvmlReturn_t ret = enter("nvmlDeviceGetP2PStatus", a.handle->index);
	if (ret == NVML_SUCCESS && gpu_lost(b.handle->index))
		ret = NVML_ERROR_GPU_IS_LOST;
	if (ret != NVML_SUCCESS)
		return ret;
	*status = NVML_P2P_STATUS_NOT_SUPPORTED;
	if (index == NVML_P2P_CAPS_INDEX_NVLINK && reaches(a, b) && reaches(b, a))
		*status = NVML_P2P_STATUS_OK;
	return NVML_SUCCESS;
}

/* No address of a real cluster. */
static const char cluster[NVML_GPU_FABRIC_UUID_LEN + 1] = "nvtopo-fake-nvml";

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t device, nvmlGpuFabricInfo_t *info)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	nvmlReturn_t ret = enter("nvmlDeviceGetGpuFabricInfo", device.handle->index);
	if (ret != NVML_SUCCESS)
		return ret;
	memset(info, 0, sizeof *info);
	if (device.handle->clique > 0) {
		memcpy(info->clusterUuid, cluster, sizeof info->clusterUuid);
		info->state = (unsigned char)gpu_state("fabric", device.handle->index, NVML_GPU_FABRIC_STATE_COMPLETED);
		info->cliqueId = (unsigned int)device.handle->clique;
	}
	return NVML_SUCCESS;
}

/* Versions 2 and 3 begin alike. */
nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t device, nvmlGpuFabricInfoV_t *info)
{
	if (!initialised())
		return NVML_ERROR_UNINITIALIZED;
	nvmlReturn_t ret = enter("nvmlDeviceGetGpuFabricInfoV", device.handle->index);
	if (ret != NVML_SUCCESS)
		return ret;
	if (info->version != nvmlGpuFabricInfo_v3 && info->version != nvmlGpuFabricInfo_v2)
		return NVML_ERROR_ARGUMENT_VERSION_MISMATCH;
	memset(info->clusterUuid, 0, sizeof info->clusterUuid);
	info->status = NVML_SUCCESS;
	info->cliqueId = 0;
	info->state = NVML_GPU_FABRIC_STATE_NOT_SUPPORTED;
	info->healthMask = 0;
	if (device.handle->clique > 0) {
		memcpy(info->clusterUuid, cluster, sizeof info->clusterUuid);
		info->state = (unsigned char)gpu_state("fabric", device.handle->index, NVML_GPU_FABRIC_STATE_COMPLETED);
		info->cliqueId = (unsigned int)device.handle->clique;
	}
	if (info->version == nvmlGpuFabricInfo_v3)
		info->healthSummary = device.handle->clique > 0 ? NVML_GPU_FABRIC_HEALTH_SUMMARY_HEALTHY : NVML_GPU_FABRIC_HEALTH_SUMMARY_NOT_SUPPORTED;
	return NVML_SUCCESS;
}
