// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"strconv"

	"sigs.k8s.io/yaml"

	v1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/nvtopo/nvtopo/bench/internal/fleet"
	"github.com/nvtopo/nvtopo/internal/lab/devcluster"
	"github.com/nvtopo/nvtopo/internal/release"
	"github.com/nvtopo/nvtopo/manifests"
)

// Namespaces of the two tenants, and the account of the tenant that makes the load.
const (
	measured = "measured"
	other    = "other"
	account  = "user"
)

// realLimits are the API server's own defaults, in place of devcluster's greater ones.
var realLimits = []string{"--max-requests-inflight=400", "--max-mutating-requests-inflight=200"}

// cluster is a control plane with nodes and a scheduler.
type cluster struct {
	*devcluster.Cluster
	kube      kubernetes.Interface // the measured tenant's
	tenant    *rest.Config         // the other tenant's
	debug     string               // address of the scheduler's what-if endpoint
	scheduler string               // schedulerName of pods
}

func start(ctx context.Context, o *options) (_ *cluster, err error) {
	dev, err := devcluster.Start(ctx, devcluster.Config{APIServerArgs: realLimits})
	if err != nil {
		return nil, fmt.Errorf("start a cluster: %w", err)
	}
	defer func() { //nolint:contextcheck // it has to end although ctx may be over
		if err != nil {
			err = errors.Join(err, dev.Stop())
		}
	}()
	c := &cluster{Cluster: dev}
	if err := errors.Join(dev.InstallManifests(ctx), dev.ApplyManifests(ctx, manifests.Pools), dev.ApplyManifests(ctx, manifests.UI)); err != nil {
		return nil, fmt.Errorf("install the manifests: %w", err)
	}
	admin := dev.RESTConfig()
	admin.QPS = -1 // this process must never be the limit
	dyn, err := dynamic.NewForConfig(admin)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if c.kube, err = kubernetes.NewForConfig(admin); err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	if err := fleet.Add(ctx, c.kube, dyn, o.Nodes, fleet.Options{}); err != nil {
		return nil, err
	}
	if err := c.addTenants(ctx); err != nil {
		return nil, err
	}
	return c, c.startScheduler(ctx, o)
}

// addTenants creates both namespaces, and an account that has the role edit in its own and may use
// the web view and what-if questions.
func (c *cluster) addTenants(ctx context.Context) error {
	for _, name := range []string{measured, other} {
		if _, err := c.kube.CoreV1().Namespaces().Create(ctx, &v1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("make namespace %s: %w", name, err)
		}
	}
	if _, err := c.kube.CoreV1().ServiceAccounts(other).Create(ctx, &v1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: account}}, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("make the tenant's account: %w", err)
	}
	subjects := []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: other, Name: account}}
	ref := func(role string) rbacv1.RoleRef {
		return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	}
	// The parts of Kubernetes' role edit; no controller runs here that would aggregate them.
	edit := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: account}, RoleRef: ref("system:aggregate-to-edit"), Subjects: subjects}
	if _, err := c.kube.RbacV1().RoleBindings(other).Create(ctx, edit, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("let the tenant into its namespace: %w", err)
	}
	for _, role := range []string{"nvtopo-ui-viewer", "nvtopo-what-if"} {
		binding := &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: role + "-tenant"}, RoleRef: ref(role), Subjects: subjects}
		if _, err := c.kube.RbacV1().ClusterRoleBindings().Create(ctx, binding, metav1.CreateOptions{}); err != nil {
			return fmt.Errorf("give the tenant the role %s: %w", role, err)
		}
	}
	var err error
	c.tenant, err = c.ServiceAccountConfig(ctx, other, account)
	if err != nil {
		return err // its errors name their cause
	}
	c.tenant.QPS = -1
	return nil
}

// startScheduler starts the scheduler with the shipped configuration and an address for what-if
// questions.
func (c *cluster) startScheduler(ctx context.Context, o *options) error {
	port, err := devcluster.FreePort()
	if err != nil {
		return fmt.Errorf("start the scheduler: %w", err)
	}
	c.debug = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	text, err := manifests.FS.ReadFile(manifests.SchedulerConfigPath)
	if err != nil {
		return fmt.Errorf("read the shipped profile: %w", err)
	}
	var fields map[string]any
	if err := yaml.Unmarshal(text, &fields); err != nil {
		return fmt.Errorf("decode the shipped profile: %w", err)
	}
	fields["leaderElection"] = map[string]any{"leaderElect": false}
	profiles, _ := fields["profiles"].([]any)
	for _, p := range profiles {
		profile, _ := p.(map[string]any)
		c.scheduler, _ = profile["schedulerName"].(string)
		plugins, _ := profile["pluginConfig"].([]any)
		for _, p := range plugins {
			plugin, _ := p.(map[string]any)
			args, _ := plugin["args"].(map[string]any)
			delete(args, "leaderLease") // without leader election
			if args["annotationWrite"] != nil {
				args["debugAddress"] = c.debug
			}
		}
	}
	config, err := yaml.Marshal(fields)
	if err != nil {
		return fmt.Errorf("encode the profile: %w", err)
	}
	log := &devcluster.Tail{}
	var flags []string
	if o.Gates != "" {
		flags = []string{"--feature-gates=" + o.Gates}
	}
	_, err = c.StartScheduler(ctx, devcluster.SchedulerOptions{
		Binary: filepath.Join(o.bin, "nvtopo-scheduler"), Config: config, ServiceAccount: release.Namespace + "/nvtopo-scheduler", Log: log, Args: flags,
	})
	if err != nil {
		return fmt.Errorf("%w\n%s", err, log)
	}
	return nil
}
