/* SPDX-License-Identifier: Apache-2.0
 *
 * What the files of the fake libnvidia-ml.so.1 share. The declarations of the
 * library itself are NVIDIA's own header, so that every type is the real one.
 */
#ifndef NVTOPO_FAKE_H
#define NVTOPO_FAKE_H

#include <stdbool.h>

/* Only the calls of the library are seen from outside. */
#pragma GCC visibility push(default)
#define NVML_NO_UNVERSIONED_FUNC_DEFS
#include <nvml.h>
#pragma GCC visibility pop

enum { MAX_GPUS = 16, MAX_LINKS = NVML_NVLINK_MAX_LINKS, MAX_SLICES = 7, ANY = -1 };

/* What an NVLink leads to. */
struct far_end {
	nvmlIntNvLinkDeviceType_t type;
	char bus[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
};

/* One GPU, or one MIG device of it; nvmlDevice_t points to it. */
struct nvmlDevice_st {
	int index; /* of the GPU */
	bool slice;
	char uuid[NVML_DEVICE_UUID_V2_BUFFER_SIZE];
	char name[NVML_DEVICE_NAME_V2_BUFFER_SIZE];
	char bus[NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE];
	unsigned long long memory; /* bytes */
	int major, minor;          /* CUDA compute capability */
	unsigned int pcie_gen;     /* 0 when not known */
	int clique;                /* of the NVSwitch fabric; 0 when it needs none */
	int links;
	struct far_end link[MAX_LINKS];
	int ancestor[MAX_GPUS]; /* nvmlGpuTopologyLevel_t to each GPU; ANY when not known */
};

struct machine {
	char driver[NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE];
	int gpus;
	struct nvmlDevice_st gpu[MAX_GPUS];
	struct nvmlDevice_st slice[MAX_GPUS][MAX_SLICES];
};

/* machine.c: reads the file that FAKENVML_MACHINE names. */
extern struct machine machine;
bool read_machine(void);

/* faults.c: what the file that FAKENVML_FAULTS names says at this moment. */

/* enter is the beginning of every call: it waits while the call is to hang, and
 * returns what the call is to fail with, NVML_SUCCESS when it is not to. gpu is
 * ANY for a call that concerns none. */
nvmlReturn_t enter(const char *call, int gpu);

enum link_state { LINK_UP, LINK_DOWN, LINK_ABSENT };

bool gpu_lost(int gpu);                  /* it answers nothing any more */
bool gpu_gone(int gpu);                  /* the driver no longer lists it */
enum link_state link_state(int gpu, int link);
unsigned int gpu_state(const char *kind, int gpu, unsigned int sound); /* remap, recover, fabric, mig */
int count_xids(void);                    /* Xids that the file has */
bool xid_at(int position, int *gpu, unsigned long long *xid);

/* library.c */
bool initialised(void);

#endif
