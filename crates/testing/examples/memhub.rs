use testing::hub::TestHub;
#[tokio::main]
async fn main() -> anyhow::Result<()> {
    let hub = TestHub::start().await?;
    std::fs::write("/tmp/memhub.kubeconfig", hub.peer.admin_kubeconfig(&[("hanse", "default"), ("root", "root")])?)?;
    println!("{}", hub.peer.url());
    tokio::signal::ctrl_c().await?;
    Ok(())
}
