// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"k8s.io/utils/clock"

	"github.com/nvtopo/nvtopo/pkg/node/deviceplugin"
)

// simulation holds the command line's values of simulate-plugin.
type simulation struct {
	cfg        deviceplugin.Config
	node       string
	machine    string
	gpus, numa int
}

func newSimulateCommand(getenv func(string) string) *cobra.Command {
	s := &simulation{}
	cmd := &cobra.Command{
		Use:   "simulate-plugin",
		Short: "Offer simulated GPUs to kubelet, or to the agent in front of it",
		Long: `simulate-plugin is a device plugin without devices: it lists simulated GPUs and
tells each container which it got in the variable --env. It is for demonstrations and
tests; with --gpus it also serves resources whose own plugin has no preference hook.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return s.run(cmd.Context()) },
	}
	f := cmd.Flags()
	f.StringVar(&s.node, "node-name", getenv("NODE_NAME"), "name of the node, from which the GPUs' UUIDs are made; by default NODE_NAME")
	f.StringVar(&s.machine, "machine", "", "offer the GPUs of a machine of the catalogue (nvtopo machines lists them)")
	f.IntVar(&s.gpus, "gpus", 0, "without --machine: how many devices to offer")
	f.IntVar(&s.numa, "numa", 0, "without --machine: number of NUMA nodes to spread them over; 0 reports none")
	f.StringVar(&s.cfg.Resource, "resource", "nvidia.com/gpu", "extended resource the devices are counted under")
	f.StringVar(&s.cfg.Env, "env", deviceplugin.DefaultEnv, "variable that tells a container its devices")
	f.StringVar(&s.cfg.PluginDir, "plugin-dir", "/var/lib/kubelet/device-plugins", "folder of the device plugins' sockets")
	f.StringVar(&s.cfg.KubeletSocket, "kubelet-socket", getenv("KUBELET_SOCKET"), "where to register; by default KUBELET_SOCKET, or kubelet.sock in --plugin-dir")
	return cmd
}

func (s *simulation) run(ctx context.Context) (err error) {
	switch {
	case s.machine != "" && s.gpus != 0:
		return errors.New("--machine and --gpus cannot be used together")
	case s.machine != "" && s.node == "":
		return errors.New("--machine needs --node-name or NODE_NAME")
	case s.machine != "":
		s.cfg.Devices, err = deviceplugin.Simulated(s.machine, s.node)
	default:
		s.cfg.Devices, err = deviceplugin.Plain("GPU-", s.gpus, s.numa)
	}
	if err != nil {
		return fmt.Errorf("make the devices: %w", err)
	}
	p, err := deviceplugin.New(s.cfg, clock.RealClock{})
	if err != nil {
		return fmt.Errorf("make the device plugin: %w", err)
	}
	return p.Run(ctx)
}
