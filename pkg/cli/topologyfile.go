// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"context"

	"github.com/spf13/cobra"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"

	"github.com/nvtopo/nvtopo/pkg/apis/topology/v1alpha1"
)

// readClusterTopology reads a file with one ClusterTopology, strictly.
func readClusterTopology(cmd *cobra.Command, file string) (*v1alpha1.ClusterTopology, error) {
	data, err := readFile(cmd, file)
	if err != nil {
		return nil, err
	}
	ct := &v1alpha1.ClusterTopology{}
	if err := decodeAs(data, v1alpha1.ClusterTopologyKind, ct); err != nil {
		return nil, inputf("%s: %w", shownName(file), err)
	}
	return ct, nil
}

// fetchClusterTopology reads the cluster's ClusterTopology; nil if it has none.
func fetchClusterTopology(ctx context.Context, client dynamic.Interface) (*v1alpha1.ClusterTopology, error) {
	u, err := client.Resource(v1alpha1.ClusterTopologyGVR).Get(ctx, v1alpha1.ClusterTopologyName, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err): // neither the object nor the definition
		return nil, nil
	case err != nil:
		return nil, inputf("reading the ClusterTopology: %w", err)
	}
	ct := &v1alpha1.ClusterTopology{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(u.Object, ct); err != nil {
		return nil, inputf("reading the ClusterTopology: %w", err)
	}
	return ct, nil
}
