// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/nvtopo/nvtopo/pkg/inspect/whatif"
)

// saving is the command snapshot save with its flags.
type saving struct {
	clusterFlags
	schedulerAccess
	output string
}

func newSnapshot() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "snapshot",
		Short: "Save what a scheduler decides by, to ask what-if later and elsewhere",
		Long:  "Save what a scheduler decides by in a file, for NVTOPO what-if --snapshot.",
		Example: `  NVTOPO snapshot save -o cluster.jsonl
  NVTOPO what-if -f pod.yaml --snapshot cluster.jsonl`,
		Args: knownCommand,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.AddCommand(newSnapshotSave())
	return cmd
}

func newSnapshotSave() *cobra.Command {
	s := &saving{}
	cmd := &cobra.Command{
		Use:   "save",
		Short: "Save what the scheduler that leads decides by",
		Long: `Save a snapshot of the scheduler that leads: its configuration, and the nodes, pods,
graphs, PodGroups, volumes and all else that it reads, as it knows them now. Pods for
which it has made a choice that they do not show yet have it in the snapshot. What
runs in pods, their environment and their mounts are not saved. PriorityClasses are
read from the API server. The scheduler is found as by what-if.

Ask by it with "NVTOPO what-if --snapshot FILE".`,
		Example: `  NVTOPO snapshot save -o cluster.jsonl`,
		Args:    noArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return s.run(cmd) },
	}
	f := cmd.Flags()
	f.StringVarP(&s.output, "output", "o", stdin, `file to write; "-" is standard output`)
	s.clusterFlags.bind(cmd)
	s.schedulerAccess.bind(cmd)
	return cmd
}

func (s *saving) run(cmd *cobra.Command) error {
	if err := s.check(); err != nil {
		return err
	}
	config, err := s.config()
	if err != nil {
		return inputf("kubeconfig: %w", err)
	}
	var snapshot *whatif.Snapshot
	err = s.ask(cmd.Context(), config, whatif.SnapshotPath, nil, func(r io.Reader) (err error) {
		snapshot, err = whatif.Read(r)
		return err
	})
	if err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return inputf("kubeconfig: %w", err)
	}
	if err := addPriorityClasses(cmd.Context(), kube, snapshot); err != nil {
		return inputf("cluster %s: %w", config.Host, err)
	}
	return s.write(cmd.OutOrStdout(), snapshot)
}

func (s *saving) write(out io.Writer, snapshot *whatif.Snapshot) error {
	if s.output == stdin {
		return snapshot.Write(&jsonWriter{out: out})
	}
	file, err := os.OpenFile(s.output, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600) // it has names of all tenants
	if err != nil {
		return inputf("--output: %w", err)
	}
	if err := snapshot.Write(file); err != nil {
		_ = file.Close() // it is incomplete anyway
		return inputf("--output: %w", err)
	}
	if err := file.Close(); err != nil {
		return inputf("--output: %w", err)
	}
	return nil
}

// addPriorityClasses adds the PriorityClasses, which only admission reads.
func addPriorityClasses(ctx context.Context, kube kubernetes.Interface, s *whatif.Snapshot) error {
	list, err := kube.SchedulingV1().PriorityClasses().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("listing PriorityClasses: %w", err)
	}
	for i := range list.Items {
		if err := s.Add(whatif.PriorityClassKind, &list.Items[i]); err != nil {
			return err
		}
	}
	return nil
}
