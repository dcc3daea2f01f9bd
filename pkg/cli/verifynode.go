// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
	"github.com/nvtopo/nvtopo/pkg/node/nodeverify"
)

// smiTimeout bounds a call of nvidia-smi, which hangs if a GPU does.
const smiTimeout = 30 * time.Second

// verifying is the command verify-node with its flags.
type verifying struct {
	out                  viewOutput
	cluster              clusterFlags
	from                 []string
	namespace, container string
	file, annotations    string
	root, resource       string
	pid                  int
	smi                  func(ctx context.Context, args ...string) ([]byte, error)
}

func newVerifyNode() *cobra.Command {
	v := &verifying{smi: runSMI}
	cmd := &cobra.Command{
		Use:   "verify-node [POD]",
		Short: "Verify, on a node or in a container, that a pod has its GPUs and runs beside them",
		Long: `Verify that a container has the GPUs that it was given, and that its CPUs, memory and
threads are beside them. It reads what is on this machine and changes nothing.

With POD, on the node where the pod runs: kubelet's record, the pod's annotation, and
what the kernel says of the processes of its containers. Only root sees other users'
environments and pages. With "kubectl debug node", --root /host, as root.

Without POD, in a container: of --pid, which is process 1, and of all that it started.
The annotation is known if --annotations names a file of the downward API.

Which NUMA nodes the GPUs are on is known by the node's NodeGPUTopology, or by -f, or by
"nvidia-smi topo -m" where that program is. The text in -f has no UUIDs: they come from
"nvidia-smi -L", or else from the NodeGPUTopology. Verdicts:
  ok       all of it, or equal; of the pages, nine tenths
  warning  a part of it; of the pages, half
  wrong    none of it, or something else
  unknown  it could not be read, for the reason that is given
Below are the commands that show the same by hand.

--from reads files instead of a cluster: the output of
  kubectl get pods,nodegputopologies -A -o yaml

Exit codes: 0 nothing is wrong; 1 something is; 2 wrong usage; 3 it could not be read.`,
		Example: `  NVTOPO verify-node trainer-0 -n team
  NVTOPO verify-node trainer-0 --from pod.yaml --root /host
  NVTOPO verify-node --annotations /etc/podinfo/annotations
  nvidia-smi topo -m | NVTOPO verify-node --pid 4242 -f - -o json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 1 {
				return usagef("want one pod at most, see '%s --help'", cmd.CommandPath())
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error { return v.run(cmd, strings.Join(args, "")) },
		ValidArgsFunction: func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
			return v.cluster.suggestPods(cmd.Context(), v.namespace, args, toComplete)
		},
	}
	v.out.bind(cmd)
	v.cluster.bind(cmd)
	f := cmd.Flags()
	f.StringArrayVar(&v.from, "from", nil, "file or folder with the pod and its node's NodeGPUTopology, instead of a cluster; may be repeated")
	f.StringVarP(&v.namespace, "namespace", "n", "", "namespace of the pod (default: the context's, or default)")
	suggest(cmd, "namespace", v.cluster.suggestNamespaces)
	f.StringVarP(&v.container, "container", "c", "", "container to verify (default: all that run; without POD, the only one of the annotation)")
	f.IntVar(&v.pid, "pid", 1, "without POD: process to verify, with all that it started")
	f.StringVar(&v.annotations, "annotations", "", "without POD: file that the downward API makes of metadata.annotations")
	f.StringVarP(&v.file, "file", "f", "", `file with the output of "nvidia-smi topo -m", a NodeGPUTopology, or the ConfigMap that export makes of one; "-" is standard input`)
	f.StringVar(&v.root, "root", "/", "folder with the node's proc, sys and var/lib/kubelet")
	f.StringVar(&v.resource, "resource", v1alpha1.DefaultResource, "extended resource the GPUs count under")
	return cmd
}

func (v *verifying) validate(pod string) error {
	switch {
	case pod != "" && v.annotations != "":
		return usagef("--annotations goes without a pod: its annotations are read")
	case pod == "" && len(v.from) > 0:
		return usagef("--from needs the name of a pod")
	case len(v.from) > 0 && (v.cluster.kubeconfig != "" || v.cluster.context != ""):
		return usagef("--from reads files: --kubeconfig and --context cannot be used with it")
	case v.pid < 1:
		return usagef("--pid %d: want the number of a process", v.pid)
	}
	return v.out.check()
}

func (v *verifying) run(cmd *cobra.Command, pod string) error {
	if err := v.validate(pod); err != nil {
		return err
	}
	root := os.DirFS(v.root)
	var report *nodeverify.Report
	var err error
	if pod == "" {
		report, err = v.ownContainer(cmd, root)
	} else {
		report, err = v.pod(cmd, root, pod)
	}
	if err != nil {
		return err
	}
	colours := paletteFor(cmd.OutOrStdout())
	if err := v.out.write(cmd.OutOrStdout(), report, verificationText(report, v.out.wide(), colours)); err != nil {
		return err
	}
	if n := report.Count(nodeverify.Wrong); n > 0 {
		return noAnswerf("%d wrong", n)
	}
	return nil
}

// runSMI runs nvidia-smi.
func runSMI(ctx context.Context, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, smiTimeout)
	defer cancel()
	return exec.CommandContext(ctx, "nvidia-smi", args...).Output()
}
