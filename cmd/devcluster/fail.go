// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/pkg/node/nodelease"
	"github.com/nvtopo/nvtopo/pkg/nvtopo/machine"
	"github.com/nvtopo/nvtopo/pkg/scheduler/controller"
)

// staleEnds describes how long the condition Stale stays after an exporter is healed.
var staleEnds = fmt.Sprintf("'kubectl get ngt' shows STALE True for %.0f s more at most, or %.0f s where it has just become so",
	controller.StaleWithin.Seconds(), controller.FreshWithin.Seconds())

// follows describes the effect of each fault, and how it heals.
var follows = map[string][2]string{
	devcluster.FaultExporter: {
		fmt.Sprintf("its exporter has ended. 'kubectl get ngt' shows STALE True in %.0f s at most: its Lease runs out within %.0f s, and the scheduler says so within %.0f s after that",
			(nodelease.Duration + controller.StaleWithin).Seconds(), nodelease.Duration.Seconds(), controller.StaleWithin.Seconds()),
		"its exporter runs, and publishes at once. " + staleEnds,
	},
	devcluster.FaultAgent: {
		fmt.Sprintf("its node agent has ended. Its Lease runs out in %.0f s at most; after that the scheduler takes the node for one without an agent", nodelease.Duration.Seconds()),
		"its node agent renews its Lease within 30 s",
	},
	devcluster.FaultNode: {
		"its kubelet is silent: Ready is Unknown, exporter and agent have ended, and its pods are evicted after their tolerationSeconds, 300 by default",
		"its kubelet is back, with exporter and agent. " + staleEnds,
	},
	devcluster.FaultGPU: {
		"the GPU is not healthy: 'kubectl get ngt' counts it no more, and no new pod gets it",
		"the GPU is healthy",
	},
}

// leaseEnds is how long after its last renewal a Lease expires.
var leaseEnds = fmt.Sprintf("%.0f s", nodelease.Duration.Seconds())

// failCommand returns the command fail, or heal.
func failCommand(fails bool) *cobra.Command {
	var kubeconfig string
	c := &cobra.Command{
		Use:   "fail exporter|agent|node NODE, or fail gpu NODE GPU",
		Short: "Have a part of a simulated node fail, on the cluster of up",
		Long: `Writes on the Node what has failed (annotation ` + devcluster.AnnotationFails + `), and the
running "nvtopo-devcluster up" carries it out:
  exporter  it ends; its Lease runs out, and the graph is stale. So does the Lease of the node's
            agent, which the simulated exporter renews too
  agent     its Lease runs out; what it published last stays, as with an agent that is killed
  gpu       the exporter publishes it as not healthy, and kubelet offers one GPU less
  node      kubelet is silent: Ready is Unknown, with the taints of the node lifecycle
            controller. Exporter and agent end with it. Pods that are deleted go, although
            on a real node that is silent they would stay until it is back
Pods whose GPU fails run on, as with the real device plugin.

On a cluster of up --helm the pod of an exporter or agent that has failed still shows Running,
since no container of it runs. Look instead, once its Lease has run out, ` + leaseEnds + ` later at most:
  exporter  "nvtopo check" has a note stale-exporter, "nvtopo top" one in NOTE, and
            "kubectl get ngt" shows STALE True
  agent     "nvtopo check" has a note stale-agent, "nvtopo top" one in NOTE; ENFORCED of
            "kubectl get ngt" stays True
"kubectl get leases" does not show when a Lease was renewed. This does:
  kubectl -n nvtopo-system get leases -o custom-columns=NAME:.metadata.name,RENEWED:.spec.renewTime`,
		Example: `  nvtopo-devcluster fail exporter hgx-h200-a
  nvtopo-devcluster fail gpu hgx-h200-a 3`,
		Args: cobra.RangeArgs(2, 3),
		RunE: func(cmd *cobra.Command, args []string) error { return setFault(cmd, kubeconfig, fails, args) },
	}
	if !fails {
		c.Use, c.Short, c.Long = "heal exporter|agent|node NODE, or heal gpu NODE GPU", "Have a part of a simulated node work again", "Undoes what fail did, in a second. After an exporter or a node\n"+staleEnds+"."
		c.Example = `  nvtopo-devcluster heal exporter hgx-h200-a`
	}
	c.Flags().StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: KUBECONFIG, as up prints it)")
	return c
}

func setFault(cmd *cobra.Command, kubeconfig string, fails bool, args []string) error {
	kind, name := args[0], args[1]
	said, known := follows[kind]
	switch {
	case !known:
		return fmt.Errorf("%q: want exporter, agent, node or gpu", kind)
	case kind == devcluster.FaultGPU && len(args) != 3:
		return fmt.Errorf("gpu: want a node and the number of a GPU, as in gpu %s 0", name)
	case kind != devcluster.FaultGPU && len(args) != 2:
		return fmt.Errorf("%s: want a node alone", kind)
	}
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = kubeconfig
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return fmt.Errorf("kubeconfig (export KUBECONFIG=… as up prints it): %w", err)
	}
	kube, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("kubeconfig: %w", err)
	}
	word := kind
	if kind == devcluster.FaultGPU {
		word += "-" + args[2]
	}
	if err := annotate(cmd.Context(), kube, name, word, fails); err != nil {
		return err
	}
	text := said[0]
	if !fails {
		text = said[1]
	}
	fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", name, text)
	return nil
}

// annotate adds a fault to the Node's annotation, or removes it.
func annotate(ctx context.Context, kube kubernetes.Interface, name, word string, fails bool) error {
	node, err := kube.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("get node %s: %w", name, err)
	}
	if node.Annotations[devcluster.AnnotationKwokNode] == "" {
		return fmt.Errorf("node %s is none of nvtopo-devcluster's: is KUBECONFIG what up printed?", name)
	}
	faults, err := devcluster.ParseFaults(node.Annotations[devcluster.AnnotationFails])
	if err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	if err := faults.Set(word, fails); err != nil {
		return err
	}
	if err := within(node.Status.NodeInfo.OSImage, faults); err != nil {
		return fmt.Errorf("node %s: %w", name, err)
	}
	var value any // null takes the annotation away
	if text := faults.String(); text != "" {
		value = text
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": node.ResourceVersion, "annotations": map[string]any{devcluster.AnnotationFails: value},
	}})
	if err != nil {
		return fmt.Errorf("encode a patch: %w", err)
	}
	if _, err := kube.CoreV1().Nodes().Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		return fmt.Errorf("patch node %s: %w", name, err)
	}
	return nil
}

// within returns an error if the machine does not have the failing GPU. Simulated nodes have the
// machine's name in place of their system's image.
func within(image string, faults *devcluster.Faults) error {
	m, err := machine.Lookup(image)
	if err != nil {
		return nil //nolint:nilerr // who runs the cluster knows
	}
	g, err := m.GraphFor("node")
	if err != nil {
		return fmt.Errorf("the graph of a %s: %w", image, err)
	}
	for gpu := range faults.GPUs {
		if gpu >= g.Len() {
			return fmt.Errorf("there is no GPU %s: the GPUs of a %s are 0 to %d", strconv.Itoa(gpu), image, g.Len()-1)
		}
	}
	return nil
}
