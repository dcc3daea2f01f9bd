// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/etcdserver/api/v3client"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// registry is the prefix of all keys of kube-apiserver in etcd.
const registry = "/registry/"

// renewed are the keys that the API server itself rewrites regularly: differences in them are irrelevant.
var renewed = []string{registry + "leases/kube-system/apiserver-", registry + "masterleases/", registry + "peerserverleases/"}

// resetTime limits the wait until a cluster is restored.
const resetTime = 3 * time.Minute

// State is the content of a cluster at one moment.
type State struct {
	keys   map[string]string // content of etcd
	groups map[string]bool   // API groups with their versions that are served
}

// State returns the present state of the cluster, for [Cluster.Reset].
func (c *Cluster) State(ctx context.Context) (*State, error) {
	kube, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	groups, err := served(kube)
	if err != nil {
		return nil, err
	}
	keys, err := c.keys(ctx)
	return &State{keys, groups}, err
}

// Differences returns the objects and groups of the API that only one state has, and the objects whose
// values differ, sorted. Keys that the API server itself renews are ignored.
func (s *State) Differences(other *State) []string {
	var diff []string
	for key, value := range s.keys {
		if now, there := other.keys[key]; !isRenewed(key) && (!there || now != value) {
			diff = append(diff, key)
		}
	}
	for key := range other.keys {
		if _, there := s.keys[key]; !isRenewed(key) && !there {
			diff = append(diff, key)
		}
	}
	for _, pair := range [][2]map[string]bool{{s.groups, other.groups}, {other.groups, s.groups}} {
		for g := range pair[0] {
			if !pair[1][g] {
				diff = append(diff, g)
			}
		}
	}
	slices.Sort(diff)
	return diff
}

// keys returns the keys of all objects in etcd, with their values.
func (c *Cluster) keys(ctx context.Context) (map[string]string, error) {
	etcd := v3client.New(c.etcd.Server)
	defer etcd.Close() //nolint:errcheck // it is in this process
	found, err := etcd.Get(ctx, registry, clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read etcd: %w", err)
	}
	keys := map[string]string{}
	for _, kv := range found.Kvs {
		keys[string(kv.Key)] = string(kv.Value)
	}
	return keys, nil
}

// Reset ends the schedulers, pool controllers and exporters that were started, brings every object
// back to an earlier state of this cluster, and returns when the API server acts on it: the cluster
// is as good as a new one, without the seconds that a new one takes. Of rights, namespaces and
// priority classes its caches may still have the old ones for a moment. A cluster with controllers,
// kwok or Kueue cannot be reset: they would write while it is.
func (c *Cluster) Reset(ctx context.Context, to *State) error {
	if c.controllers != nil || c.accounts != nil || c.kwok != nil || c.kueue != nil {
		return errors.New("reset the cluster: controllers, kwok or Kueue run in it")
	}
	if err := c.endPrograms(ctx); err != nil {
		return err
	}
	// The last writes of the programs, and the reactions of the API server's own controllers, may come after
	// the first look.
	if err := poll(ctx, resetTime, "the cluster is as it was", func(ctx context.Context) error {
		changed, err := c.bringBack(ctx, to.keys)
		if err == nil && changed > 0 {
			err = fmt.Errorf("%d objects were others", changed)
		}
		return err
	}); err != nil {
		return err
	}
	kube, err := kubernetes.NewForConfig(c.RESTConfig())
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	if err := poll(ctx, resetTime, "what was deleted is not served", func(ctx context.Context) error {
		return stillThere(ctx, kube, to)
	}); err != nil {
		return err
	}
	// The policy with which it probes is younger than the deletion of those before.
	a, err := newApplier(c)
	if err != nil {
		return err
	}
	return a.waitPolicies(ctx)
}

// endPrograms ends the programs outside the control plane.
func (c *Cluster) endPrograms(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil || c.stopped {
		return errors.New("reset the cluster: its API server does not run")
	}
	var errs []error
	for _, p := range c.poolControllers {
		errs = append(errs, p.Kill())
	}
	for _, s := range c.schedulers {
		errs = append(errs, s.Kill())
	}
	c.cancelExporter()
	c.exporters.Wait()
	c.poolControllers, c.schedulers, c.stopExporter, c.simulated = nil, nil, map[string]context.CancelFunc{}, map[string]*simulated{}
	c.exporterCtx, c.cancelExporter = context.WithCancel(context.WithoutCancel(ctx))
	return errors.Join(errs...)
}

// bringBack deletes the keys that an earlier state does not have, and restores the values that differ
// from it. It returns their number.
func (c *Cluster) bringBack(ctx context.Context, to map[string]string) (changed int, err error) {
	now, err := c.keys(ctx)
	if err != nil {
		return 0, err
	}
	etcd := v3client.New(c.etcd.Server)
	defer etcd.Close() //nolint:errcheck // it is in this process
	for key, value := range now {
		before, kept := to[key]
		switch {
		case isRenewed(key) || kept && before == value:
			continue
		case kept:
			_, err = etcd.Put(ctx, key, before)
		default:
			_, err = etcd.Delete(ctx, key)
		}
		if err != nil {
			return 0, fmt.Errorf("bring back %s: %w", key, err)
		}
		changed++
	}
	for key, value := range to {
		if _, there := now[key]; there || isRenewed(key) {
			continue
		}
		if _, err := etcd.Put(ctx, key, value); err != nil {
			return 0, fmt.Errorf("bring back %s: %w", key, err)
		}
		changed++
	}
	return changed, nil
}

func isRenewed(key string) bool {
	for _, prefix := range renewed {
		if strings.HasPrefix(key, prefix) {
			return true
		}
	}
	return false
}

// served returns the API groups, with their versions, that the API server serves.
func served(kube kubernetes.Interface) (map[string]bool, error) {
	list, err := kube.Discovery().ServerGroups()
	if err != nil {
		return nil, fmt.Errorf("discover: %w", err)
	}
	groups := map[string]bool{}
	for i := range list.Groups {
		for _, v := range list.Groups[i].Versions {
			groups[v.GroupVersion] = true
		}
	}
	return groups, nil
}

// stillThere fails while the API server serves a group that was not served earlier, or pods or
// nodes that were deleted: its caches follow etcd.
func stillThere(ctx context.Context, kube kubernetes.Interface, to *State) error {
	groups, err := served(kube)
	if err != nil {
		return err
	}
	for g := range groups {
		if !to.groups[g] {
			return fmt.Errorf("%s is served", g)
		}
	}
	nodes, err := kube.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	pods, err := kube.CoreV1().Pods(metav1.NamespaceAll).List(ctx, metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("list pods: %w", err)
	}
	for i := range nodes.Items {
		if _, there := to.keys[registry+"minions/"+nodes.Items[i].Name]; !there {
			return fmt.Errorf("node %s is there", nodes.Items[i].Name)
		}
	}
	for i := range pods.Items {
		if _, there := to.keys[registry+"pods/"+pods.Items[i].Namespace+"/"+pods.Items[i].Name]; !there {
			return fmt.Errorf("pod %s/%s is there", pods.Items[i].Namespace, pods.Items[i].Name)
		}
	}
	return nil
}
