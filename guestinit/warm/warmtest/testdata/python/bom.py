print("bom", __file__)
