// Operator runs a controller-runtime manager: a custom resource with a status, owned objects, a finalizer, an indexed
// and filtered cache, events and leader election.
package main

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"hanse.test/clients/check"
)

// world is what every check needs.
type world struct {
	config    *rest.Config
	scheme    *runtime.Scheme
	client    client.Client
	namespace string
	first     *running
	second    *running
}

// running is a manager in the background.
type running struct {
	ctrl.Manager
	stop  context.CancelFunc
	ended chan error
}

func main() {
	ctrl.SetLogger(logr.Discard())
	klog.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", check.Kubeconfig())
	if err != nil {
		panic(err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{}
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{clientscheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(scheme); err != nil {
			panic(err)
		}
	}
	addShops(scheme)
	direct, err := client.New(config, client.Options{Scheme: scheme})
	if err != nil {
		panic(err)
	}
	w := &world{config: config, scheme: scheme, client: direct, namespace: check.Unique("clients-operator")}

	suite := &check.Suite{}
	suite.Run("a namespace is made", func(t *check.T) {
		t.Must(direct.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}), "create")
	})
	suite.Run("a definition is established", w.establish)
	suite.Run("a manager is elected and starts", func(t *check.T) {
		w.first = w.start(t)
		check.Receive(t, closed(w.first.Elected()), "an election")
		t.Want(w.first.GetCache().WaitForCacheSync(t.Context()), "caches in sync")
	})
	w.checkShops(suite)
	suite.Run("a second manager takes over", w.takeOver)
	suite.Run("a Shop is finalized and its objects are collected", w.finalize)
	suite.Run("managers stop cleanly", w.stopAll)
	suite.Run("a definition goes, and its objects with it", w.removeDefinition)
	suite.Run("the namespace goes", func(t *check.T) {
		namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: w.namespace}}
		t.Must(direct.Delete(t.Context(), namespace), "delete")
		w.gone(t, namespace)
	})
	suite.Exit()
}

// closed hands on that a channel was closed as a value.
func closed[V any](channel <-chan V) <-chan bool {
	done := make(chan bool, 1)
	go func() { <-channel; done <- true }()
	return done
}

func (w *world) gone(t *check.T, object client.Object) {
	t.Eventually(object.GetName(), func() error {
		err := w.client.Get(t.Context(), client.ObjectKeyFromObject(object), object)
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("is still there (%v)", err)
	})
}

func (w *world) establish(t *check.T) {
	definition := shopDefinition()
	t.Must(w.client.Create(t.Context(), definition), "create")
	t.Eventually("the definition", func() error {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(definition), definition); err != nil {
			return err
		}
		holds := map[apiextensionsv1.CustomResourceDefinitionConditionType]bool{}
		for _, condition := range definition.Status.Conditions {
			holds[condition.Type] = condition.Status == apiextensionsv1.ConditionTrue
		}
		if !holds[apiextensionsv1.NamesAccepted] || !holds[apiextensionsv1.Established] {
			return fmt.Errorf("conditions %v", definition.Status.Conditions)
		}
		return nil
	})
	t.Want(definition.Status.AcceptedNames.Kind == "Shop" && definition.Status.StoredVersions[0] == "v1", "names and versions in the status")
	// As envtest does: wait until it is served as well.
	t.Eventually("the resource", func() error { return w.client.List(t.Context(), &ShopList{}, client.InNamespace(w.namespace)) })
}

func (w *world) start(t *check.T) *running {
	manager, err := ctrl.NewManager(w.config, ctrl.Options{
		Scheme:  w.scheme,
		Metrics: server.Options{BindAddress: "0"}, HealthProbeBindAddress: "0",
		LeaderElection: true, LeaderElectionID: "shop-operator", LeaderElectionNamespace: w.namespace,
		LeaderElectionReleaseOnCancel: true,
		LeaseDuration:                 ptr.To(4 * time.Second), RenewDeadline: ptr.To(3 * time.Second), RetryPeriod: ptr.To(200 * time.Millisecond),
		Cache: cache.Options{
			DefaultNamespaces: map[string]cache.Config{w.namespace: {}},
			ByObject: map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {
				Label: labels.NewSelector().Add(mustRequire("shop"))}},
		},
	})
	t.Must(err, "make a manager")
	t.Must(manager.GetFieldIndexer().IndexField(t.Context(), &corev1.ConfigMap{}, "data.colour", func(object client.Object) []string {
		return []string{object.(*corev1.ConfigMap).Data["colour"]}
	}), "add an index")
	loop := &reconciler{Client: manager.GetClient(), events: manager.GetEventRecorder("shop-operator")}
	t.Must(loop.install(manager), "install the loop")
	ctx, stop := context.WithCancel(context.Background())
	started := &running{Manager: manager, stop: stop, ended: make(chan error, 1)}
	go func() { started.ended <- manager.Start(ctx) }()
	return started
}

func mustRequire(label string) labels.Requirement {
	requirement, err := labels.NewRequirement(label, "exists", nil)
	if err != nil {
		panic(err)
	}
	return *requirement
}

func (w *world) takeOver(t *check.T) {
	w.second = w.start(t)
	w.first.stop()
	t.Must(check.Receive(t, w.first.ended, "the first to end"), "stop")
	check.Receive(t, closed(w.second.Elected()), "an election")
	w.changed(t, "main", func(shop *Shop) { shop.Spec.Colour = "blue" })
	w.reconciled(t, "main")
}

func (w *world) stopAll(t *check.T) {
	w.second.stop()
	t.Must(check.Receive(t, w.second.ended, "the second to end"), "stop")
}

func (w *world) removeDefinition(t *check.T) {
	left := &Shop{ObjectMeta: metav1.ObjectMeta{Name: "left", Namespace: w.namespace}}
	t.Must(w.client.Create(t.Context(), left), "create a Shop")
	definition := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: "shops." + shopVersion.Group}}
	t.Must(w.client.Delete(t.Context(), definition), "delete the definition")
	w.gone(t, definition)
	t.Eventually("the resource", func() error {
		if err := w.client.Get(t.Context(), client.ObjectKeyFromObject(left), left); !apierrors.IsNotFound(err) {
			return fmt.Errorf("is still served (%v)", err)
		}
		return nil
	})
}
