/* SPDX-License-Identifier: Apache-2.0
 *
 * The machine: lines of text that the Go package beside this folder writes.
 *
 *   driver VERSION
 *   gpu INDEX UUID BUS MEMORY MAJOR MINOR PCIE-GEN CLIQUE NAME
 *   ancestor INDEX INDEX LEVEL
 *   nvlink INDEX LINK gpu|switch|cpu BUS
 */
#include "fake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct machine machine;

/* add_slices makes the MIG devices that the GPU may have, each of an eighth of its memory. A UUID
 * is the GPU's with MIG before it, and the number for its last digit. */
static void add_slices(const struct nvmlDevice_st *g)
{
	for (int i = 0; i < MAX_SLICES; i++) {
		struct nvmlDevice_st *s = &machine.slice[g->index][i];

		*s = *g;
		s->slice = true;
		s->memory = g->memory / 8;
		s->links = 0;
		memcpy(s->uuid, "MIG", 3);
		s->uuid[strlen(s->uuid) - 1] = (char)('0' + i);
	}
}

static bool read_gpu(const char *line)
{
	struct nvmlDevice_st g;
	int name = 0;

	memset(&g, 0, sizeof g);
	if (sscanf(line, "gpu %d %95s %31s %llu %d %d %u %d %n", &g.index, g.uuid, g.bus, &g.memory, &g.major, &g.minor,
		   &g.pcie_gen, &g.clique, &name) < 8 ||
	    name == 0 || g.index != machine.gpus || g.index >= MAX_GPUS)
		return false;
	snprintf(g.name, sizeof g.name, "%s", line + name);
	for (int i = 0; i < MAX_GPUS; i++)
		g.ancestor[i] = ANY;
	machine.gpu[machine.gpus++] = g;
	add_slices(&g);
	return true;
}

static bool read_ancestor(const char *line)
{
	int a, b, level;

	if (sscanf(line, "ancestor %d %d %d", &a, &b, &level) != 3 || a < 0 || b < 0 || a >= machine.gpus || b >= machine.gpus)
		return false;
	machine.gpu[a].ancestor[b] = machine.gpu[b].ancestor[a] = level;
	return true;
}

static bool read_nvlink(const char *line)
{
	int gpu, link;
	char kind[8];
	struct far_end end;

	memset(&end, 0, sizeof end);
	if (sscanf(line, "nvlink %d %d %7s %31s", &gpu, &link, kind, end.bus) != 4 || gpu < 0 || gpu >= machine.gpus ||
	    link != machine.gpu[gpu].links || link >= MAX_LINKS)
		return false;
	if (strcmp(kind, "gpu") == 0)
		end.type = NVML_NVLINK_DEVICE_TYPE_GPU;
	else if (strcmp(kind, "switch") == 0)
		end.type = NVML_NVLINK_DEVICE_TYPE_SWITCH;
	else if (strcmp(kind, "cpu") == 0)
		end.type = NVML_NVLINK_DEVICE_TYPE_IBMNPU;
	else
		return false;
	machine.gpu[gpu].link[machine.gpu[gpu].links++] = end;
	return true;
}

/* read_machine says on stderr what is wrong: nobody else would. */
bool read_machine(void)
{
	const char *path = getenv("FAKENVML_MACHINE");
	char line[512];
	bool good = true;
	FILE *f = path != NULL ? fopen(path, "re") : NULL;

	if (f == NULL) {
		fprintf(stderr, "fake NVML: FAKENVML_MACHINE=%s cannot be read\n", path != NULL ? path : "");
		return false;
	}
	memset(&machine, 0, sizeof machine);
	while (good && fgets(line, sizeof line, f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '\0' || line[0] == '#')
			continue;
		good = sscanf(line, "driver %79s", machine.driver) == 1 || read_gpu(line) || read_ancestor(line) || read_nvlink(line);
		if (!good)
			fprintf(stderr, "fake NVML: %s: cannot read the line: %s\n", path, line);
	}
	fclose(f);
	return good;
}
