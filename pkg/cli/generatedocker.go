// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"cmp"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/cli/generate"
	"github.com/nvtopo/nvtopo/pkg/nvtopo"
)

type dockerOptions struct {
	src                         source
	docker                      generate.Docker
	pick                        pickOptions
	gpus, freeCPUs, command     string
	cpus                        int
	memory, reservation, shared string
}

func newGenerateDocker() *cobra.Command {
	var o dockerOptions
	cmd := &cobra.Command{
		Use:   "docker -n COUNT | --gpus LIST [flags] [-- COMMAND]",
		Short: "Write a docker command that runs a container beside its GPUs",
		Long: `Write a docker command line, for a POSIX shell, that runs a container on the CPUs and
the memory nearest to its GPUs. -n COUNT takes the best free GPUs as pick does, --gpus
those of the list. CPUs are chosen as affinity does.

--cpuset-cpus does not bind memory, so --cpuset-mems is there too. Without --memory,
--memory-reservation and --shm-size the container has 32g of memory for each GPU, 7/8 of
it reserved, and 16g of it for /dev/shm. CUDA indices restart at 0 inside the container.
The containers of two such commands are not kept apart: leave out what others have
with --free and --free-cpus.`,
		Example: `  NVTOPO generate docker --machine dgx-a100 -n 2 --cpus 16
  NVTOPO generate docker -f topo.txt --numactl numa.txt --gpus 0-3 --shm-size 32Gi
  NVTOPO generate docker --node gpu-node-7 --gpus 0 --cpus 8 --image example.com/serve:1 -- python serve.py`,
		Args: commandArgs,
		RunE: o.run,
	}
	o.src.bind(cmd)
	f := cmd.Flags()
	f.IntVarP(&o.pick.count, "count", "n", 0, "how many GPUs; the best free ones are taken")
	f.StringVar(&o.pick.free, "free", "", "with -n: indices of the free GPUs, for example 0,2-4")
	f.StringVar(&o.gpus, "gpus", "", "indices of the GPUs, for example 0,2-4")
	f.IntVar(&o.cpus, "cpus", 0, "how many CPUs (default: all of the GPUs' NUMA nodes)")
	f.StringVar(&o.freeCPUs, "free-cpus", "", "CPUs that may be used, for example 2-31,64-95 (default: all)")
	f.IntVar(&o.docker.CPUShares, "cpu-shares", 1024, "weight against other containers on the same CPUs")
	f.StringVar(&o.memory, "memory", "", "limit of the memory, for example 64Gi or 64g (default: 32Gi for each GPU)")
	f.StringVar(&o.reservation, "memory-reservation", "", "memory that is left to the container when others want it (default: 7/8 of --memory)")
	f.StringVar(&o.shared, "shm-size", "", "size of /dev/shm, a part of the memory (default: 16Gi for each GPU)")
	f.StringVar(&o.docker.Name, "name", "", "name of the container")
	f.StringVar(&o.docker.Image, "image", imagePlace, "image")
	f.StringVar(&o.command, "command", "", "command line in the container, instead of the COMMAND; its words are divided at spaces")
	return cmd
}

func (o *dockerOptions) run(cmd *cobra.Command, command []string) error {
	flags := cmd.Flags()
	switch {
	case flags.Changed("gpus") == flags.Changed("count"):
		return usagef("either -n or --gpus is needed")
	case flags.Changed("free") && !flags.Changed("count"):
		return usagef("--free goes with -n only")
	case flags.Changed("count") && o.pick.count < 1:
		return usagef("-n %d: want the number of GPUs, 1 or more", o.pick.count)
	case flags.Changed("cpus") && o.cpus < 1:
		return usagef("--cpus %d: want the number of CPUs, 1 or more", o.cpus)
	}
	command, err := commandOf(o.command, command)
	if err != nil {
		return err
	}
	in, err := o.src.load(cmd)
	if err != nil {
		return err
	}
	set, err := o.set(in, flags.Changed("free"))
	if err != nil {
		return err
	}
	a, err := near(in, set, o.cpus, o.freeCPUs)
	if err != nil {
		return err
	}
	d := &o.docker
	d.GPUs, d.CPUs, d.MemNodes, d.Command = a.GPUs, a.cpus, a.MemNodes, command
	if err := o.setMemory(in.graph); err != nil {
		return err
	}
	data, err := d.Write()
	return writeGenerated(cmd, data, err)
}

// set returns the GPUs of --gpus, or the best ones.
func (o *dockerOptions) set(in *input, free bool) (nvtopo.Mask, error) {
	if o.pick.count == 0 {
		set, err := in.parseGPUs("--gpus", o.gpus)
		if err != nil {
			return 0, err
		}
		return in.usable("--gpus", o.gpus, true, set.Len())
	}
	usable, err := in.usable("--free", o.pick.free, free, o.pick.count)
	if err != nil {
		return 0, err
	}
	_, choice, err := o.pick.choose(in, usable, nvtopo.Constraint{Policy: nvtopo.PolicyBestEffort})
	return choice.Set, err
}

// setMemory reads the amounts, and refuses more than the chosen NUMA nodes have.
func (o *dockerOptions) setMemory(g *nvtopo.Graph) error {
	d := &o.docker
	memory, err := parseQuantity("--memory", cmp.Or(o.memory, perGPU(memoryPerGPU, len(d.GPUs))))
	if err != nil {
		return err
	}
	shared, err := parseQuantity("--shm-size", cmp.Or(o.shared, perGPU(sharedMemoryPerGPU, len(d.GPUs))))
	if err != nil {
		return err
	}
	d.Memory, d.SharedMemory = memory.Value(), shared.Value()
	d.MemoryReservation = d.Memory / 8 * 7
	if o.reservation != "" {
		reserved, err := parseQuantity("--memory-reservation", o.reservation)
		if err != nil {
			return err
		}
		d.MemoryReservation = reserved.Value()
	}
	if has := memoryOf(g, d.MemNodes); has > 0 && d.Memory > has {
		return usagef("--memory: %d MiB are more than NUMA nodes %s have, %d MiB", d.Memory>>20, join(d.MemNodes), has>>20)
	}
	return nil
}

// memoryOf is the memory of NUMA nodes in bytes; 0 if that of one is not known.
func memoryOf(g *nvtopo.Graph, nodes []int) int64 {
	sum := int64(0)
	for _, id := range nodes {
		for i := range g.NUMANodes {
			if n := &g.NUMANodes[i]; n.ID == id {
				if n.Memory == 0 {
					return 0
				}
				sum += n.Memory
			}
		}
	}
	return sum
}
