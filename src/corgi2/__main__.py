from corgi2.cli import main

main()
