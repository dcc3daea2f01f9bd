// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	schedulingv1alpha1 "sigs.k8s.io/scheduler-plugins/apis/scheduling/v1alpha1"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"

	"github.com/nvtopo/nvtopo/pkg/apis/pool/v1alpha1"
)

// completerName is the name under which kubectl calls a plugin to complete its arguments.
const completerName = "kubectl_complete-" + programName

// Bounds of the shell's wait, and of the number of its suggestions.
const (
	suggestTimeout = 3 * time.Second
	suggestMost    = 500
)

type suggester = func(cmd *cobra.Command, args []string, toComplete string) ([]string, cobra.ShellCompDirective)

// suggest completes the values of a flag, which must exist.
func suggest(cmd *cobra.Command, flag string, by suggester) {
	cobra.CheckErr(cmd.RegisterFlagCompletionFunc(flag, by))
}

// Arguments returns the command's arguments: the words after the program's name in the shell. kubectl
// calls a plugin by another name for completions, which stands for the command that cobra's scripts call.
func Arguments(all []string) []string {
	if strings.TrimSuffix(filepath.Base(all[0]), ".exe") == completerName {
		return append([]string{cobra.ShellCompRequestCmd}, all[1:]...)
	}
	return all[1:]
}

// suggestNames lists the names of objects; none if the cluster cannot be reached.
func (c *clusterFlags) suggestNames(ctx context.Context, resource schema.GroupVersionResource, namespace string) []string {
	ctx, cancel := context.WithTimeout(ctx, suggestTimeout)
	defer cancel()
	config, err := c.config()
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil
	}
	client, err := metadata.NewForConfig(config)
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil
	}
	list, err := client.Resource(resource).Namespace(namespace).List(ctx, metav1.ListOptions{Limit: suggestMost})
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil
	}
	names := make([]string, len(list.Items))
	for i := range list.Items {
		names[i] = list.Items[i].Name
	}
	return names
}

// suggestNodes completes the only argument with the name of a node.
func (c *clusterFlags) suggestNodes(ctx context.Context, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return beginning(toComplete, "", c.suggestNames(ctx, v1.SchemeGroupVersion.WithResource("nodes"), "")), cobra.ShellCompDirectiveNoFileComp
}

// suggestNamespaces completes a flag.
func (c *clusterFlags) suggestNamespaces(cmd *cobra.Command, _ []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	return beginning(toComplete, "", c.suggestNames(cmd.Context(), v1.SchemeGroupVersion.WithResource("namespaces"), "")), cobra.ShellCompDirectiveNoFileComp
}

// suggestPods completes the only argument with the name of a pod.
func (c *clusterFlags) suggestPods(ctx context.Context, namespace string, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 0 {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.suggestIn(ctx, v1.SchemeGroupVersion.WithResource("pods"), namespace, "", toComplete), cobra.ShellCompDirectiveNoFileComp
}

// suggestTargets completes the argument of explain: a pod's name, or kind and name.
func (c *clusterFlags) suggestTargets(ctx context.Context, namespace string, args []string, toComplete string) ([]string, cobra.ShellCompDirective) {
	kind, _, ok := strings.Cut(toComplete, "/")
	if !ok || len(args) > 0 {
		pods, directive := c.suggestPods(ctx, namespace, args, toComplete)
		if len(args) == 0 {
			var kinds []string
			for _, kind := range kindNames() {
				kinds = append(kinds, kind+"/")
			}
			pods = append(pods, beginning(toComplete, "", kinds)...)
		}
		return pods, directive | cobra.ShellCompDirectiveNoSpace
	}
	k, _ := explainKindOf(kind)
	resource, known := map[string]schema.GroupVersionResource{
		"pod":             v1.SchemeGroupVersion.WithResource("pods"),
		"podgroup":        schedulingv1alpha1.SchemeGroupVersion.WithResource("podgroups"),
		"job":             batchv1.SchemeGroupVersion.WithResource("jobs"),
		"elasticjob":      v1alpha1.ElasticJobGVR,
		"deployment":      appsv1.SchemeGroupVersion.WithResource("deployments"),
		"statefulset":     appsv1.SchemeGroupVersion.WithResource("statefulsets"),
		"replicaset":      appsv1.SchemeGroupVersion.WithResource("replicasets"),
		"jobset":          {Group: "jobset.x-k8s.io", Version: "v1alpha2", Resource: "jobsets"},
		"leaderworkerset": {Group: "leaderworkerset.x-k8s.io", Version: "v1", Resource: "leaderworkersets"},
	}[k.name]
	if !known {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return c.suggestIn(ctx, resource, namespace, kind+"/", toComplete), cobra.ShellCompDirectiveNoFileComp
}

func (c *clusterFlags) suggestIn(ctx context.Context, resource schema.GroupVersionResource, namespace, prefix, toComplete string) []string {
	namespace, err := c.ownNamespace(namespace)
	if err != nil {
		cobra.CompErrorln(err.Error())
		return nil
	}
	return beginning(toComplete, prefix, c.suggestNames(ctx, resource, namespace))
}

// beginning returns the names with the prefix that begin with the typed text.
func beginning(typed, prefix string, names []string) []string {
	var out []string
	for _, n := range names {
		if n = prefix + n; strings.HasPrefix(n, typed) {
			out = append(out, n)
		}
	}
	slices.Sort(out)
	return out
}
