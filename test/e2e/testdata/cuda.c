// SPDX-License-Identifier: Apache-2.0

// Has every GPU that CUDA shows square some numbers, and prints the UUIDs of those that did. With
// the argument "fault" they write where there is no memory, as a program with a mistake does.
// It takes CUDA from the driver's library alone, so that it compiles where there is no toolkit.

#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { numbers = 256 };

// Each thread squares its own number. PTX of an old target runs on every newer one.
static const char kernel[] =
	".version 6.0\n.target sm_52\n.address_size 64\n"
	".visible .entry square(.param .u64 out) {\n"
	"  .reg .b32 %r<3>;\n"
	"  .reg .b64 %d<5>;\n"
	"  ld.param.u64 %d1, [out];\n"
	"  cvta.to.global.u64 %d2, %d1;\n"
	"  mov.u32 %r1, %tid.x;\n"
	"  mul.lo.u32 %r2, %r1, %r1;\n"
	"  mul.wide.u32 %d3, %r1, 4;\n"
	"  add.s64 %d4, %d2, %d3;\n"
	"  st.global.u32 [%d4], %r2;\n"
	"  ret;\n"
	"}\n";

static void *library;

static void *call(const char *name) {
	void *f = dlsym(library, name);
	if (f == NULL) {
		fprintf(stderr, "no %s: %s\n", name, dlerror());
		exit(1);
	}
	return f;
}

// must runs a call of the driver's, whose result is 0 if it succeeded.
#define must(name, types, ...)                                         \
	do {                                                           \
		int result = ((int(*) types)call(name))(__VA_ARGS__);  \
		if (result != 0) {                                     \
			fprintf(stderr, "%s: %d\n", name, result);     \
			exit(1);                                       \
		}                                                      \
	} while (0)

static void compute(int device, int fault) {
	void *context, *module, *function;
	uint64_t out;
	uint32_t got[numbers];
	must("cuDevicePrimaryCtxRetain", (void **, int), &context, device);
	must("cuCtxSetCurrent", (void *), context);
	must("cuModuleLoadData", (void **, const char *), &module, kernel);
	must("cuModuleGetFunction", (void **, void *, const char *), &function, module, "square");
	must("cuMemAlloc_v2", (uint64_t *, size_t), &out, sizeof(got));
	uint64_t nowhere = 16;
	void *arguments[] = {fault ? &nowhere : &out};
	must("cuLaunchKernel", (void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **, void **),
	     function, 1, 1, 1, numbers, 1, 1, 0, NULL, arguments, NULL);
	must("cuMemcpyDtoH_v2", (void *, uint64_t, size_t), got, out, sizeof(got));
	for (uint32_t i = 0; i < numbers; i++) {
		if (got[i] != i * i) {
			fprintf(stderr, "the square of %u came out as %u\n", i, got[i]);
			exit(1);
		}
	}
	must("cuDevicePrimaryCtxRelease_v2", (int), device);
}

int main(int argc, char **argv) {
	int fault = argc > 1 && strcmp(argv[1], "fault") == 0;
	library = dlopen("libcuda.so.1", RTLD_NOW);
	if (library == NULL) {
		fprintf(stderr, "%s\n", dlerror());
		return 1;
	}
	int count;
	must("cuInit", (unsigned), 0);
	must("cuDeviceGetCount", (int *), &count);
	for (int i = 0; i < count; i++) {
		int device;
		unsigned char u[16];
		must("cuDeviceGet", (int *, int), &device, i);
		compute(device, fault);
		must("cuDeviceGetUuid_v2", (unsigned char *, int), u, device);
		printf("GPU-");
		for (int b = 0; b < 16; b++) {
			printf("%s%02x", b == 4 || b == 6 || b == 8 || b == 10 ? "-" : "", u[b]);
		}
		printf(" squared %d numbers\n", numbers);
	}
	return 0;
}
