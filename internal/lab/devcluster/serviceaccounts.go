// SPDX-License-Identifier: Apache-2.0

package devcluster

import (
	"context"
	"fmt"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/controller/certificates/rootcacertpublisher"
	"k8s.io/kubernetes/pkg/controller/serviceaccount"
)

// startServiceAccounts starts the controllers that create the sources of a pod's mounted token and copy
// of the cluster's CA.
func startServiceAccounts(ctx context.Context, base *rest.Config) (*controllers, error) {
	cfg := rest.CopyConfig(base)
	cfg.UserAgent = "kube-controller-manager"
	client, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("make the controllers' client: %w", err)
	}
	shared := informers.NewSharedInformerFactory(client, 0)
	core := shared.Core().V1()
	accounts, err := serviceaccount.NewServiceAccountsController(klog.FromContext(ctx), core.ServiceAccounts(), core.Namespaces(), client,
		serviceaccount.DefaultServiceAccountsControllerOptions())
	if err != nil {
		return nil, fmt.Errorf("make the service-account controller: %w", err)
	}
	authority, err := rootcacertpublisher.NewPublisher(core.ConfigMaps(), core.Namespaces(), client, cfg.CAData)
	if err != nil {
		return nil, fmt.Errorf("make the root-ca-certificate publisher: %w", err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	c := &controllers{cancel: cancel}
	c.wg.Go(func() { accounts.Run(ctx, workers) })
	c.wg.Go(func() { authority.Run(ctx, workers) })
	shared.Start(ctx.Done())
	c.wg.Go(func() {
		<-ctx.Done()
		shared.Shutdown()
	})
	return c, nil
}
