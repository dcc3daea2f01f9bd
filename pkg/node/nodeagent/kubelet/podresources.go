// SPDX-License-Identifier: Apache-2.0

package kubelet

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"k8s.io/apimachinery/pkg/types"
	podresourcesv1 "k8s.io/kubelet/pkg/apis/podresources/v1"
)

// maxMessageBytes limits one response: 16 MiB, as in kubelet's own clients.
const maxMessageBytes = 16 << 20

// Devices lists the devices of an active pod: container -> resource -> sorted ids. A container without
// devices has an empty map. Plain init containers are never included, because kubelet does not report
// them.
type Devices map[string]map[string][]string

// PodResources is a client of kubelet's PodResources service (v1). It is safe for
// concurrent use and reconnects by itself when kubelet restarts.
type PodResources struct {
	conn   *grpc.ClientConn
	client podresourcesv1.PodResourcesListerClient
}

// Dial returns a client for the service on a unix socket, usually
// /var/lib/kubelet/pod-resources/kubelet.sock. It connects at the first call.
func Dial(socket string) (*PodResources, error) {
	retry := backoff.DefaultConfig
	// A restart of kubelet takes a second or two. With these delays the client
	// reconnects soon after.
	retry.BaseDelay, retry.MaxDelay = 20*time.Millisecond, 500*time.Millisecond
	conn, err := grpc.NewClient("unix://"+socket,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxMessageBytes)))
	if err != nil {
		return nil, fmt.Errorf("PodResources at %s: %w", socket, err)
	}
	return &PodResources{conn: conn, client: podresourcesv1.NewPodResourcesListerClient(conn)}, nil
}

// Close closes the connection.
func (p *PodResources) Close() error { return p.conn.Close() }

// Get returns the devices of an active pod's containers. The error may wrap ErrUnknownPod, ErrBusy or
// ErrUnsupported. Kubelet finds pods by name only: after a pod was replaced by one of the same name, the
// result may be about either.
func (p *PodResources) Get(ctx context.Context, namespace, name string) (Devices, error) {
	resp, err := p.client.Get(ctx, &podresourcesv1.GetPodResourcesRequest{PodNamespace: namespace, PodName: name})
	if err != nil {
		return nil, fmt.Errorf("devices of pod %s/%s: %w", namespace, name, classify(err))
	}
	out := Devices{}
	for _, c := range resp.GetPodResources().GetContainers() {
		byResource := map[string][]string{}
		for _, d := range c.GetDevices() {
			byResource[d.GetResourceName()] = append(byResource[d.GetResourceName()], d.GetDeviceIds()...)
		}
		// Kubelet lists devices by NUMA node, so a resource may have several entries.
		for resource, ids := range byResource {
			slices.Sort(ids)
			byResource[resource] = slices.Compact(ids)
		}
		out[c.GetName()] = byResource
	}
	return out, nil
}

// ActivePods returns the names of the pods that kubelet treats as active, with one request. If the
// feature gate KubeletPodResourcesListUseActivePods is off, ended pods are included. The error may wrap
// ErrBusy.
//
// Kubelet cleans up before it responds: it frees the devices of ended pods and recomputes which devices
// are taken. It then forgets devices that it is just allocating and has not recorded yet
// (kubernetes/kubernetes#137534). So call this only while kubelet allocates none.
func (p *PodResources) ActivePods(ctx context.Context) (map[types.NamespacedName]bool, error) {
	resp, err := p.client.List(ctx, &podresourcesv1.ListPodResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("active pods: %w", classify(err))
	}
	out := make(map[types.NamespacedName]bool, len(resp.GetPodResources()))
	for _, pod := range resp.GetPodResources() {
		out[types.NamespacedName{Namespace: pod.GetNamespace(), Name: pod.GetName()}] = true
	}
	return out, nil
}

// Device is one healthy device in kubelet's inventory.
type Device struct {
	ID        string
	NUMANodes []int // ascending; empty if the plugin reports none
}

// Allocatable returns the healthy devices of every resource, sorted by id. Devices in
// use are included.
func (p *PodResources) Allocatable(ctx context.Context) (map[string][]Device, error) {
	resp, err := p.client.GetAllocatableResources(ctx, &podresourcesv1.AllocatableResourcesRequest{})
	if err != nil {
		return nil, fmt.Errorf("allocatable devices: %w", classify(err))
	}
	nodes := map[string]map[string][]int{} // resource -> id -> NUMA nodes
	for _, d := range resp.GetDevices() {
		r := d.GetResourceName()
		if nodes[r] == nil {
			nodes[r] = map[string][]int{}
		}
		for _, id := range d.GetDeviceIds() {
			of := nodes[r][id]
			for _, n := range d.GetTopology().GetNodes() {
				of = append(of, int(n.GetID()))
			}
			nodes[r][id] = of
		}
	}
	out := make(map[string][]Device, len(nodes))
	for r, ids := range nodes {
		for id, numa := range ids {
			slices.Sort(numa)
			out[r] = append(out[r], Device{ID: id, NUMANodes: slices.Compact(numa)})
		}
		slices.SortFunc(out[r], func(a, b Device) int { return strings.Compare(a.ID, b.ID) })
	}
	return out, nil
}

// classify maps a gRPC error to one of this package's errors. Kubelet creates its errors with fmt.Errorf,
// so most have the code Unknown and differ only in their text.
func classify(err error) error {
	s, ok := status.FromError(err)
	if !ok {
		return err
	}
	text := s.Message()
	switch s.Code() {
	case codes.NotFound:
		return fmt.Errorf("%w: %w", ErrUnknownPod, err)
	case codes.Unimplemented:
		return fmt.Errorf("%w: %w", ErrUnsupported, err)
	case codes.ResourceExhausted:
		// gRPC itself uses this code for a message that is too large.
		if strings.Contains(text, "larger than max") {
			return err
		}
		return fmt.Errorf("%w: %w", ErrBusy, err)
	case codes.Unknown:
		if strings.HasPrefix(text, "pod ") && strings.HasSuffix(text, " not found") {
			return fmt.Errorf("%w: %w", ErrUnknownPod, err)
		}
		if strings.HasSuffix(text, "Get method disabled") {
			return fmt.Errorf("%w: %w", ErrUnsupported, err)
		}
		return err
	default:
		return err
	}
}
