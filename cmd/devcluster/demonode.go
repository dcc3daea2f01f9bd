// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster/realnode/gpunode"
)

const (
	// waveTimeout limits the time of one wave of pods: a few seconds on an idle machine.
	waveTimeout  = 2 * time.Minute
	wavePoll     = 100 * time.Millisecond
	demoPodLabel = "nvtopo-demo"
)

func demoNodeCommand(s *settings) *cobra.Command {
	return &cobra.Command{
		Use:   "demo-node",
		Short: "Run pods on a real node with simulated GPUs, and compare the choice, kubelet's record and what containers see",
		Long: `Starts a control plane, our scheduler and one real node on this machine: kubelet,
containerd and runc, NVIDIA's own device plugin, our exporter, and the node agent
between plugin and kubelet. Only the driver is not real: a libnvidia-ml.so.1 of
ours that shows the eight GPUs of a DGX-1. Then it runs pods and compares the
scheduler's annotation, kubelet's checkpoint, the PodResources API and the
containers' own environment. Needs Linux and root. Exits with 1 if any two
disagree.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return runDemoNode(cmd, s) },
	}
}

func runDemoNode(cmd *cobra.Command, s *settings) (err error) {
	ctx, progress := cmd.Context(), cmd.ErrOrStderr()
	log, closeLog, err := s.logs()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeLog()) }()
	begun := time.Now()
	say := func(what string) { fmt.Fprintf(progress, "%5.1f s  %s\n", time.Since(begun).Seconds(), what) }
	rows, err := carryOutOnNode(ctx, gpunode.Config{
		Bin: filepath.Dir(s.scheduler), Dir: s.dir, Agent: true, NRI: true, NVIDIA: true, AgentArgs: []string{"--nri=pin"},
		Log: log, Progress: say,
	}, say)
	if err != nil {
		if ctx.Err() != nil {
			return ctx.Err() // run recognizes Ctrl-C by it
		}
		_, _ = io.WriteString(progress, log.String()) // the error is reported anyway
		return err
	}
	if err := writeRows(cmd.OutOrStdout(), rows); err != nil {
		return err
	}
	wrong := 0
	for i := range rows {
		if !rows[i].equal() {
			wrong++
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d of %d containers got other GPUs than were chosen or recorded", wrong, len(rows))
	}
	cmd.PrintErrf("%d containers: chosen, recorded and seen are equal\n", len(rows))
	return nil
}

// waves returns the pods of the demo. The pods of a wave are created at once and together take all eight
// GPUs.
func waves() [][]*v1.Pod {
	return [][]*v1.Pod{
		{
			gpunode.Pod("pair-a", 2), gpunode.Pod("pair-b", 2), gpunode.Pod("pair-c", 2),
			gpunode.Pod("single-a", 1), gpunode.Pod("single-b", 1),
		},
		{
			gpunode.Pod("train", 4, gpunode.WithInit("download", 1)),
			gpunode.Pod("two", 1, gpunode.WithContainer("second", 1)),
			gpunode.Pod("served", 1, gpunode.WithSidecar("proxy", 1)),
		},
	}
}

// carryOutOnNode runs the demo and removes all of it.
func carryOutOnNode(ctx context.Context, cfg gpunode.Config, say func(string)) (_ []row, err error) {
	l, err := gpunode.Start(ctx, cfg)
	if err != nil {
		return nil, fmt.Errorf("start a node: %w", err)
	}
	defer func() { err = errors.Join(err, l.Stop()) }() //nolint:contextcheck // it has to end although ctx may be over
	var rows []row
	for i, wave := range waves() {
		say(fmt.Sprintf("wave %d: creating %d pods at once", i+1, len(wave)))
		got, err := runWave(ctx, l, wave)
		if err != nil {
			return nil, err
		}
		rows = append(rows, got...)
	}
	say("removing everything")
	return rows, nil
}

// runWave creates pods, waits until all containers run, reads their GPUs, and deletes the pods.
func runWave(ctx context.Context, l *gpunode.Lab, wave []*v1.Pod) ([]row, error) {
	pods := l.Client.CoreV1().Pods(metav1.NamespaceDefault)
	for _, p := range wave {
		p.Labels = map[string]string{demoPodLabel: "true"}
		if _, err := pods.Create(ctx, p, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("create pod %s: %w", p.Name, err)
		}
	}
	var rows []row
	for _, p := range wave {
		got, err := observe(ctx, l, p.Name)
		if err != nil {
			return nil, err
		}
		rows = append(rows, got...)
	}
	selector := metav1.ListOptions{LabelSelector: demoPodLabel}
	if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{}, selector); err != nil {
		return nil, fmt.Errorf("delete the pods: %w", err)
	}
	err := wait.PollUntilContextTimeout(ctx, wavePoll, waveTimeout, true, func(ctx context.Context) (bool, error) {
		list, err := pods.List(ctx, selector)
		return err == nil && len(list.Items) == 0, nil
	})
	if err != nil {
		return nil, fmt.Errorf("wait until the pods are gone: %w", err)
	}
	return rows, nil
}

// observe waits until a pod runs, and returns the GPUs of its containers.
func observe(ctx context.Context, l *gpunode.Lab, name string) ([]row, error) {
	var rows []row
	var last error
	err := wait.PollUntilContextTimeout(ctx, wavePoll, waveTimeout, true, func(ctx context.Context) (bool, error) {
		pod, err := l.Client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, name, metav1.GetOptions{})
		switch {
		case err != nil:
			last = err
			return false, nil //nolint:nilerr // asked again
		case pod.Status.Phase == v1.PodFailed:
			return false, fmt.Errorf("kubelet refused it: %s: %s", pod.Status.Reason, pod.Status.Message)
		case pod.Status.Phase != v1.PodRunning:
			last = fmt.Errorf("it is %s", pod.Status.Phase)
			return false, nil
		}
		containers, err := l.Observe(ctx, pod)
		if last = err; err != nil {
			return false, nil //nolint:nilerr // asked again: not all have reported yet
		}
		rows = rowsOf(l.Graph, pod, containers)
		return true, nil
	})
	if err != nil {
		return nil, fmt.Errorf("pod %s: %w", name, errors.Join(err, last))
	}
	return rows, nil
}
